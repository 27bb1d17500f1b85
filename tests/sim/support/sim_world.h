#pragma once
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/conformance/support/faulty_provider.h"
#include "tests/sim/support/sim_client.h"
#include "tests/unit/log/support/log_world.h"
#include "transport/rdma/memory/memory.h"

namespace ciuic::sim {

/// One run: a seed draws the log's sizes, which faults exist at all and how often, the load, and the order of
/// everything. Real: the log (over simulated files), the exposure, the memory provider, the read loop. Simulated: time,
/// disk, faults.
class SimWorld {
 public:
  explicit SimWorld(std::uint64_t seed);
  ~SimWorld();
  /// Something happens. False: the run is wrong, see `difference`.
  bool step();
  /// No more faults and no more load: every reader must come to the end.
  bool finish();
  [[nodiscard]] const std::string& difference() const { return difference_; }

  struct Totals {
    std::uint64_t steps = 0, appended = 0, one_sided = 0, fetched = 0, restarts = 0, faults = 0, revocations = 0,
                  grants = 0, renewals = 0, draining = 0;
  };
  [[nodiscard]] Totals totals() const;

 private:
  /// Passes on to the exposure of now; while there is none, chunks are given back at once.
  struct Forward final : broker::LogObserver {
    broker::Exposure* to = nullptr;
    void chunk_opened(broker::Partition& p, const std::shared_ptr<broker::Chunk>& c) override {
      if (to) to->chunk_opened(p, c);
    }
    void chunk_sealed(broker::Partition& p, const std::shared_ptr<broker::Chunk>& c) override {
      if (to) to->chunk_sealed(p, c);
    }
    void chunk_wanted_back(broker::Partition& p, const std::shared_ptr<broker::Chunk>& c, Task done) override {
      if (to) return to->chunk_wanted_back(p, c, std::move(done));
      done();
    }
    void committed(broker::Partition& p, const broker::Committed& at) override {
      if (to) to->committed(p, at);
    }
    void layout_changed(broker::Partition& p, broker::LayoutChange change) override {
      if (to) to->layout_changed(p, change);
    }
  };

  static broker::ArenaConfig draw_arena(std::mt19937_64& dice);
  [[nodiscard]] std::uint64_t roll(std::uint64_t below) { return dice_() % below; }
  [[nodiscard]] bool chance(int thousandths) { return static_cast<int>(roll(1000)) < thousandths; }
  void start_exposure();
  void stop_exposure(bool clean);
  void restart(bool clean);
  void append();
  void end_transactions();
  void add_client();
  bool clients(bool frozen_stay);
  void background(std::size_t steps);
  [[nodiscard]] BrokerSide side();

  std::mt19937_64 dice_;
  Forward forward_;
  rdma::MemoryFabric fabric_;
  broker::testing::LogWorld log_;
  std::shared_ptr<testing::FaultState> faults_ = std::make_shared<testing::FaultState>();
  std::shared_ptr<rdma::Provider> broker_provider_;
  std::shared_ptr<rdma::Provider> client_provider_;
  std::unique_ptr<broker::Exposure> exposure_;
  broker::LogConfig config_;
  broker::ExposureSettings settings_;
  kafka::TopicId topic_;
  Model model_;
  std::string difference_;
  bool may_read_ = true;

  struct Consumer {
    std::unique_ptr<SimClient> client;
    int frozen_steps = 0;
  };
  std::vector<Consumer> consumers_;
  std::uint64_t next_connection_ = 1;
  std::int64_t next_producer_ = 1000;
  struct Open {
    kafka::ProducerId id;
    std::int32_t sequence;
  };
  std::vector<Open> open_;
  int weight_append_, weight_time_, rate_restart_, rate_evict_, rate_delete_, rate_retention_, rate_freeze_, rate_cut_,
      rate_deny_, rate_transaction_;
  Totals totals_;
};

}  // namespace ciuic::sim
