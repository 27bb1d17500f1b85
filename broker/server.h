#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "broker/settings/settings.h"
#include "transport/base/clock.h"
#include "transport/base/result.h"

namespace ciuic::broker {

/// A whole broker in this process.
class Server {
 public:
  /// Opens log directories (formatting empty ones), recovers, listens, and serves until `stop`. Blocks until it serves.
  /// `overrides` are the keys of server.properties and the command line. Errors: words that name key or path, and what
  /// to do. Any number of servers may run in a process if their directories and ports differ.
  [[nodiscard]] static ResultOf<std::unique_ptr<Server>, std::string> start(const Overrides& overrides);
  /// Stops if it still runs.
  ~Server();

  /// Where it listens, first listener; the kernel's choice where the port was 0.
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] const std::string& cluster_id() const;
  /// Accepts no more, answers what was asked, flushes, writes the clean-shutdown marker. Blocks; at most about
  /// `drain` for the connections, and as long as the disk needs. True if the stop was clean. Idempotent.
  bool stop(Milliseconds drain = Milliseconds(3000));

  /// For tests that look inside.
  [[nodiscard]] struct Broker& broker();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ciuic::broker
