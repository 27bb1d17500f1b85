#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ciuic::broker {

/// Who a connection speaks for: "User:ANONYMOUS" on a PLAINTEXT listener.
struct Principal {
  std::string type = "User";
  std::string name = "ANONYMOUS";
  bool operator==(const Principal&) const = default;
  [[nodiscard]] std::string to_string() const { return type + ":" + name; }
};

/// Kafka's ACL vocabulary, numbers as on the wire.
enum class Operation : std::int8_t {
  read = 3,
  write = 4,
  create = 5,
  remove = 6,
  alter = 7,
  describe = 8,
  cluster_action = 9,
  describe_configs = 10,
  alter_configs = 11,
  idempotent_write = 12
};
enum class Resource : std::int8_t { topic = 2, group = 3, cluster = 4, transactional_id = 5 };

/// Asked by every handler before it acts, and by exposure at every grant and renewal. Any thread; never blocks.
class Authorizer {
 public:
  virtual ~Authorizer() = default;
  [[nodiscard]] virtual bool allows(const Principal& principal, Operation operation, Resource resource,
                                    std::string_view name) const = 0;
};

/// A broker without ACLs: everybody may do everything, as Kafka without `authorizer.class.name`.
class PermitAll final : public Authorizer {
 public:
  [[nodiscard]] bool allows(const Principal&, Operation, Resource, std::string_view) const override { return true; }
};

}  // namespace ciuic::broker
