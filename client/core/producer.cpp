// The public calls of a producer, on the program's threads.
#include "ciuic/producer.h"

#include "client/core/producer_impl.h"

namespace ciuic::client {

using core::Co;
using core::failure;

namespace {
Error on_own_thread(const char* what) {
  return failure(
      Trouble::invalid_state,
      std::string(what) + " was called inside a delivery callback: the thread it would wait for is this one");
}
}  // namespace

Producer::Impl::Impl(core::ProducerSettings settings)
    : settings_(std::move(settings)),
      loop_(system_clock()),
      cluster_(loop_, settings_),
      accumulator_(settings_, loop_, [this] { loop_.post([this] { look(); }); }) {
  loop_.start();
}

Producer::Impl::~Impl() { (void)close(Milliseconds(0)); }

Result<void> Producer::Impl::send(const RecordToSend& record, DeliveryCallback done) {
  if (in_forked_child()) return core::forked_child();
  return accumulator_.append(record, std::move(done));
}

Result<void> Producer::Impl::flush(Milliseconds timeout) {
  if (in_forked_child()) return core::forked_child();
  if (loop_.is_current()) return on_own_thread("flush");
  return accumulator_.flush(timeout);
}

Result<void> Producer::Impl::close(Milliseconds timeout) {
  if (in_forked_child()) return {};
  if (loop_.is_current()) return on_own_thread("close");
  const std::scoped_lock guard(close_mutex_);
  if (std::exchange(closed_, true)) return {};
  accumulator_.refuse(failure(Trouble::invalid_state, "the producer is closed"));
  auto outcome = accumulator_.flush(timeout);
  (void)loop_.run<bool>([this]() -> Co<bool> {
    ended_ = true;
    fail_all(failure(Trouble::timed_out, "the producer was closed before the record was written"));
    cluster_.close(failure(Trouble::invalid_state, "the producer is closed"));
    co_return true;
  });
  loop_.stop();
  return outcome;
}

Result<std::int32_t> Producer::Impl::partition_count(std::string_view topic, Milliseconds timeout) {
  if (in_forked_child()) return core::forked_child();
  return accumulator_.partition_count(topic, timeout);
}

std::vector<Metric> Producer::Impl::metrics() const {
  if (in_forked_child()) return {};
  std::vector<Metric> out;
  const auto add = [&out](const char* what, const std::atomic<std::int64_t>& value) {
    out.push_back({what, {}, value.load(std::memory_order_relaxed)});
  };
  add("ciuic_client_producer_records_total", counters_.records);
  add("ciuic_client_producer_bytes_total", counters_.bytes);
  add("ciuic_client_producer_batches_total", counters_.batches);
  add("ciuic_client_producer_requests_total", counters_.requests);
  add("ciuic_client_producer_failed_records_total", counters_.failed_records);
  add("ciuic_client_producer_retries_total", counters_.retries);
  add("ciuic_client_producer_splits_total", counters_.splits);
  add("ciuic_client_producer_new_epochs_total", counters_.new_epochs);
  out.push_back(
      {"ciuic_client_producer_buffered_bytes_gauge", {}, static_cast<std::int64_t>(accumulator_.buffered_bytes())});
  out.push_back(
      {"ciuic_client_producer_buffered_records_gauge", {}, static_cast<std::int64_t>(accumulator_.buffered_records())});
  return out;
}

// --- The handle ---

Result<Producer> Producer::open(const Config& config) {
  auto settings = core::producer_settings(config);
  if (!settings) return settings.error();
  return Producer(std::make_unique<Impl>(std::move(*settings)));
}

Producer::Producer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Producer::Producer(Producer&&) noexcept = default;
Producer& Producer::operator=(Producer&& other) noexcept {
  if (this == &other) return *this;
  if (impl_ && impl_->in_forked_child()) (void)impl_.release();
  impl_ = std::move(other.impl_);
  return *this;
}
Producer::~Producer() {
  // A child has none of the threads: what they hold cannot be unwound there.
  if (impl_ && impl_->in_forked_child()) (void)impl_.release();
}

Result<void> Producer::send(const RecordToSend& record, DeliveryCallback done) {
  return impl_->send(record, std::move(done));
}

Result<std::future<Result<Written>>> Producer::send_future(const RecordToSend& record) {
  auto promise = std::make_shared<std::promise<Result<Written>>>();
  auto future = promise->get_future();
  if (auto sent = impl_->send(record, [promise](const Result<Written>& result) { promise->set_value(result); }); !sent)
    return sent.error();
  return future;
}

Result<void> Producer::flush(Milliseconds timeout) { return impl_->flush(timeout); }
Result<void> Producer::close(Milliseconds timeout) { return impl_->close(timeout); }
Result<std::int32_t> Producer::partition_count(std::string_view topic, Milliseconds timeout) {
  return impl_->partition_count(topic, timeout);
}
std::vector<Metric> Producer::metrics() const { return impl_->metrics(); }

}  // namespace ciuic::client
