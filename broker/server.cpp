// Putting a broker together and taking it apart. Not here: what any part does.
#include "broker/server.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <future>
#include <thread>

#include "broker/api/fetch_sessions.h"
#include "broker/api/producer_ids.h"
#include "broker/dispatcher.h"
#include "broker/exposure/exposure.h"
#include "broker/exposure/worker.h"
#include "broker/group/coordinator.h"
#include "broker/home.h"
#include "broker/memory_limit.h"
#include "broker/metadata/local_controller.h"
#include "transport/base/log.h"
#include "transport/kafka/net/listener.h"

namespace ciuic::broker {
namespace {
namespace asio = boost::asio;

struct Address {
  std::string host;
  std::uint16_t port = 0;
};

ResultOf<std::vector<Address>, std::string> parse_listeners(std::string_view key, std::string_view text) {
  std::vector<Address> found;
  while (!text.empty()) {
    const auto end = std::min(text.find(','), text.size());
    const auto one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto scheme = one.find("://");
    const auto colon = one.rfind(':');
    Address address;
    const auto* const last = one.data() + one.size();
    std::from_chars_result port{};
    if (colon != std::string_view::npos) port = std::from_chars(one.data() + colon + 1, last, address.port);
    if (port.ec == std::errc::result_out_of_range)
      return fmt::format("Invalid value {} for configuration {}: a port is 0 (any free one) to 65535", one, key);
    if (scheme == std::string_view::npos || one.substr(0, scheme) != "PLAINTEXT" || colon < scheme + 3 ||
        port.ptr != last || colon + 1 == one.size()) {
      return fmt::format("Invalid value {} for configuration {}: write PLAINTEXT://host:port", one, key);
    }
    address.host = one.substr(scheme + 3, colon - scheme - 3);
    if (address.host.size() > 2 && address.host.front() == '[')
      address.host = address.host.substr(1, address.host.size() - 2);
    found.push_back(std::move(address));
  }
  return found;
}

std::string own_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

ExposureSettings exposure_settings(const BrokerConfig& config) {
  ExposureSettings settings;
  settings.enabled = config.onesided_enable;
  settings.providers = config.onesided_providers;
  settings.listen = config.onesided_listen;
  settings.trusted_readers = config.rdma_trusted_readers;
  settings.runtime_dir =
      config.onesided_runtime_dir.empty() ? config.log_dirs.front() + "/onesided" : config.onesided_runtime_dir;
  settings.socket_mode = static_cast<std::uint32_t>(std::stoul(config.onesided_socket_mode, nullptr, 8));
  settings.lease_ms = config.onesided_lease_ms;
  settings.sessions_per_principal_max = static_cast<std::uint32_t>(config.onesided_sessions_per_principal_max);
  settings.grants_per_session_max = static_cast<std::uint32_t>(config.onesided_grants_per_session_max);
  settings.read_ahead_bytes = static_cast<std::uint32_t>(config.read_ahead_bytes);
  return settings;
}

/// Threads that check large batches. Each holds one batch unpacked, so their number bounds the memory; and a quarter of
/// the cores is what bombs may take from the shards.
unsigned check_threads(unsigned cores, std::uint64_t unpacked_bytes_max) {
  constexpr std::uint64_t budget_bytes = 512ULL << 20;
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>(std::min<std::uint64_t>(cores / 4, budget_bytes / unpacked_bytes_max), 1, 4));
}

/// Removes the folder of the one-sided sockets, where we chose it, once they are gone: Apache's broker takes every
/// folder in a log directory for a partition's, and refuses to start on this one.
struct RuntimeFolder {
  std::string path;
  RuntimeFolder() = default;
  RuntimeFolder(const RuntimeFolder&) = delete;
  RuntimeFolder& operator=(const RuntimeFolder&) = delete;
  ~RuntimeFolder() {
    if (!path.empty()) (void)::rmdir(path.c_str());  // one that holds something else stays
  }
};

}  // namespace

struct Server::Impl {
  Broker broker;
  Home home;
  std::unique_ptr<ThreadPoolIo> io;
  std::unique_ptr<ThreadPoolIo> checks;
  PermitAll authorizer;
  std::unique_ptr<Shards> shards;
  std::unique_ptr<LogEvents> events;
  RuntimeFolder runtime_folder;  // goes after exposure
  std::unique_ptr<Worker> registrar;
  std::unique_ptr<Exposure> exposure;
  std::unique_ptr<Partitions> partitions;
  std::unique_ptr<GroupCoordinator> groups;
  std::unique_ptr<LocalController> controller;
  std::unique_ptr<ProducerIds> producer_ids;
  std::unique_ptr<FetchSessions> fetch_sessions;
  std::unique_ptr<Dispatcher> dispatcher;
  std::vector<kafka::net::Listener> listeners;
  std::uint16_t port = 0;
  std::atomic<std::size_t> next_shard{0};
  bool running = false;

  /// File threads and the registrar first: their last jobs post to the shards. Then the shards, with the coroutines
  /// that wait in them, which refer to everything else.
  ~Impl() {
    checks.reset();
    io.reset();
    if (registrar) registrar->stop();
    listeners.clear();
    shards.reset();
  }

  [[nodiscard]] GroupCoordinator::FindPartition finder() {
    return [this](const kafka::TopicId& topic, kafka::PartitionIndex index) { return partitions->find(topic, index); };
  }
};

ResultOf<std::unique_ptr<Server>, std::string> Server::start(const Overrides& overrides) {
  auto impl = std::make_unique<Impl>();
  auto& broker = impl->broker;
  auto config = make_broker_config(overrides);
  if (!config) return config.error();
  broker.config = std::move(*config);
  broker.overrides = overrides;
  broker.clock = &system_clock();
  broker.authorizer = &impl->authorizer;
  if (log::Level level{}; log::parse_level(broker.config.log_level, level)) log::set_level(level);

  const auto addresses = parse_listeners("listeners", broker.config.listeners);
  if (!addresses) return addresses.error();
  if (addresses->empty()) return std::string("Invalid value  for configuration listeners: name at least one");
  const auto advertised = parse_listeners("advertised.listeners", broker.config.advertised_listeners);
  if (!advertised) return advertised.error();

  auto home = open_home(posix_files(), broker.config.log_dirs, broker.config.node_id);
  if (!home) return home.error();
  impl->home = std::move(*home);
  broker.cluster_id = impl->home.cluster_id;

  // A core is left to the file threads, which every produce passes through.
  const auto cores = std::max(2U, std::thread::hardware_concurrency());
  impl->shards = std::make_unique<Shards>(
      broker.config.network_threads > 0 ? static_cast<std::size_t>(broker.config.network_threads) : cores - 1);
  broker.shards = impl->shards.get();
  for (const auto& address : *addresses) {
    auto listener = kafka::net::Listener::open((*impl->shards)[0].context(), address.host, address.port);
    if (!listener) return listener.error();
    impl->listeners.push_back(std::move(*listener));
  }
  impl->port = impl->listeners.front().port();
  Address told = advertised->empty() ? addresses->front() : advertised->front();
  if (told.host.empty() || told.host == "0.0.0.0" || told.host == "::") told.host = own_name();
  if (told.port == 0) told.port = impl->port;

  impl->io = std::make_unique<ThreadPoolIo>(posix_files(), static_cast<unsigned>(broker.config.io_threads));
  impl->checks = std::make_unique<ThreadPoolIo>(
      posix_files(), check_threads(cores, static_cast<std::uint64_t>(broker.config.decompressed_batch_bytes_max)));
  ArenaConfig arena;
  arena.budget_bytes = static_cast<std::uint64_t>(broker.config.memory_bytes);
  arena.chunk_bytes_max = static_cast<std::uint32_t>(broker.config.memory_chunk_bytes_max);
  if (const auto limit = memory_limit("/proc", "/sys/fs/cgroup"); limit && arena.budget_bytes > *limit)
    log::warn(
        "broker",
        "log.memory.bytes={} is more than the memory of this machine or control group, {} bytes: as logs fill it, "
        "the kernel may kill the broker; set it lower",
        arena.budget_bytes, *limit);
  impl->events = std::make_unique<LogEvents>(impl->shards->size());
  broker.events = impl->events.get();

  auto* const state = impl.get();
  if (broker.config.onesided_enable) {
    const auto settings = exposure_settings(broker.config);
    if (broker.config.onesided_runtime_dir.empty()) impl->runtime_folder.path = settings.runtime_dir;
    Exposure::Parts parts;
    parts.settings = settings;
    parts.clock = broker.clock;
    parts.home = &(*impl->shards)[0];
    parts.executors = impl->shards->executors();
    parts.providers = Exposure::make_providers(settings, *broker.clock);
    impl->registrar = std::make_unique<Worker>();
    parts.blocking = [worker = impl->registrar.get()](Task task, Turn turn) { worker->run(std::move(task), turn); };
    impl->exposure = std::make_unique<Exposure>(std::move(parts));
    impl->events->set_next(impl->exposure.get());
    broker.exposure = impl->exposure.get();
  }

  impl->partitions = std::make_unique<Partitions>(
      Partitions::Parts{&broker.config, &broker.overrides, impl->shards.get(), impl->io.get(), impl->checks.get(),
                        broker.clock, impl->events.get(), Arena::make(arena)});
  broker.partitions = impl->partitions.get();
  impl->groups = std::make_unique<GroupCoordinator>(GroupSettings::from(broker.config), *broker.clock);
  broker.groups = impl->groups.get();

  LocalController::Parts parts;
  parts.config = &broker.config;
  parts.log_dir = broker.config.log_dirs.front();
  parts.host = told.host;
  parts.port = told.port;
  parts.directory_id = impl->home.directory_ids.front();
  parts.incarnation = kafka::Uuid::random();
  parts.io = impl->io.get();
  parts.clock = broker.clock;
  parts.executor = &(*impl->shards)[0];
  parts.apply = [state](MetadataPointer previous, MetadataPointer next, std::function<void(kafka::Error)> ready) {
    state->partitions->apply(previous, next, [state, next, ready = std::move(ready)](kafka::Error error) {
      state->groups->image_changed(next, state->finder());
      ready(std::move(error));
    });
  };
  parts.can_create = [state] { return state->partitions->can_create(); };
  auto controller = LocalController::open(std::move(parts));
  if (!controller) return controller.error();
  impl->controller = std::move(*controller);
  broker.controller = impl->controller.get();
  if (impl->exposure) {
    impl->exposure->set_lookup({impl->finder(), [state](const std::string& principal, const std::string& topic) {
                                  const auto colon = principal.find(':');
                                  const Principal who{principal.substr(0, colon),
                                                      colon == std::string::npos ? "" : principal.substr(colon + 1)};
                                  return state->authorizer.allows(who, Operation::read, Resource::topic, topic);
                                }});
  }
  const auto image = impl->controller->image();
  if (const auto opened = impl->partitions->open(*image); !opened) return opened.error();
  impl->producer_ids = std::make_unique<ProducerIds>(*impl->controller);
  broker.producer_ids = impl->producer_ids.get();
  impl->fetch_sessions =
      std::make_unique<FetchSessions>(static_cast<std::size_t>(broker.config.fetch_session_slots), *broker.clock);
  broker.fetch_sessions = impl->fetch_sessions.get();
  impl->dispatcher = std::make_unique<Dispatcher>(broker);

  impl->shards->start();
  impl->running = true;
  impl->groups->image_changed(image, impl->finder());
  impl->partitions->start_upkeep();
  for (auto& listener : impl->listeners) {
    asio::co_spawn(
        (*impl->shards)[0].context(),
        [state, &listener]() {
          // A socket's connection lives on the shard that its io_context is; they are dealt out in turn.
          return listener.run(
              [state]() -> asio::io_context& { return (*state->shards)[state->next_shard.load()].context(); },
              [state](asio::ip::tcp::socket socket) {
                auto& shard = (*state->shards)[state->next_shard.fetch_add(1)];
                asio::post(shard.context(), [state, &shard, socket = std::move(socket)]() mutable {
                  state->dispatcher->accept(shard, std::move(socket));
                });
              });
        },
        asio::detached);
  }
  log::info("broker", "ready address={}:{} node_id={} cluster_id={} partitions={} version={} kafka={}", told.host,
            told.port, broker.config.node_id, broker.cluster_id, impl->partitions->all().size(), version(),
            kafka_level);
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { stop(); }

std::uint16_t Server::port() const { return impl_->port; }
const std::string& Server::cluster_id() const { return impl_->broker.cluster_id; }
Broker& Server::broker() { return impl_->broker; }

namespace {

/// Runs `start(done)` and waits for `done`, at most `limit`. False: it was not called in time.
template <class Start>
bool wait_for(Milliseconds limit, Start start) {
  auto promise = std::make_shared<std::promise<void>>();
  auto done = promise->get_future();
  start([promise] { promise->set_value(); });
  return done.wait_for(limit) == std::future_status::ready;
}

}  // namespace

bool Server::stop(Milliseconds drain) {
  if (!impl_->running) return true;
  impl_->running = false;
  auto& shards = *impl_->shards;
  wait_for(drain, [&](auto done) {
    shards[0].post([this, done] {
      for (auto& listener : impl_->listeners) listener.close();
      done();
    });
  });
  impl_->dispatcher->drain();
  const auto deadline = impl_->broker.clock->now() + drain;
  while (impl_->dispatcher->connections() > 0 && impl_->broker.clock->now() < deadline)
    std::this_thread::sleep_for(Milliseconds(5));
  impl_->dispatcher->close_all();
  wait_for(drain, [&](auto done) { impl_->groups->stop(done); });
  if (impl_->exposure) {
    wait_for(drain, [&](auto done) { impl_->exposure->close(Task(done)); });
  }
  bool clean = false;
  // As long as the disk needs: an acknowledged record is in the kernel already, the marker only spares the next scan.
  const bool closed = wait_for(std::chrono::minutes(5), [&](auto done) {
    impl_->partitions->close(impl_->controller->image()->offset(), [&clean, done](bool all_well) {
      clean = all_well;
      done();
    });
  });
  shards.stop();
  log::info("broker", "stopped clean={}", clean && closed);
  log::flush();
  return clean && closed;
}

}  // namespace ciuic::broker
