#pragma once
/// Everything of the C++ client: link the CMake target ciuic_client (static). libciuic.so has the C ABI (ciuic.h).
#include "ciuic/batch.h"
#include "ciuic/consumer.h"
#include "ciuic/producer.h"
#include "ciuic/result.h"
#include "ciuic/types.h"

namespace ciuic::client {

/// "0.1.0"
[[nodiscard]] const char* version();

/// A setting, for docs and `--help`.
struct SettingInfo {
  const char* key;
  const char* applies_to;  ///< "consumer", "producer", "both"
  const char* type;        ///< "string", "integer", "boolean", "choice"
  const char* standard;    ///< its default, as text
  const char* allowed;
  const char* what;
};
[[nodiscard]] std::span<const SettingInfo> settings();

/// What the library writes to stderr: "debug", "info" (the default), "warn", "error", "off". False: none of them.
bool set_log_level(std::string_view level);

}  // namespace ciuic::client
