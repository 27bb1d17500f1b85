// Names of what is counted.
#include "broker/exposure/exposure.h"

namespace ciuic::broker {

std::string_view name(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::disabled:
      return "disabled";
    case RefusalReason::no_common_provider:
      return "no_common_provider";
    case RefusalReason::too_many_sessions:
      return "too_many_sessions";
    case RefusalReason::too_many_grants:
      return "too_many_grants";
    case RefusalReason::unknown_session:
      return "unknown_session";
    case RefusalReason::foreign_session:
      return "foreign_session";
    case RefusalReason::unknown_partition:
      return "unknown_partition";
    case RefusalReason::not_authorized:
      return "not_authorized";
    case RefusalReason::out_of_range:
      return "out_of_range";
    case RefusalReason::no_memory:
      return "no_memory";
    case RefusalReason::draining:
      return "draining";
    case RefusalReason::registration_failed:
      return "registration_failed";
    case RefusalReason::over_share:
      return "over_share";
    case RefusalReason::stale_epoch:
      return "stale_epoch";
    case RefusalReason::storage_error:
      return "storage_error";
    case RefusalReason::bad_request:
      return "bad_request";
    case RefusalReason::count_:
      break;
  }
  return "unknown";
}

std::string_view name(RevocationReason reason) {
  switch (reason) {
    case RevocationReason::released:
      return "released";
    case RevocationReason::position_passed:
      return "position_passed";
    case RevocationReason::lease_over:
      return "lease_over";
    case RevocationReason::chunk_wanted_back:
      return "chunk_wanted_back";
    case RevocationReason::gave_way:
      return "gave_way";
    case RevocationReason::session_closed:
      return "session_closed";
    case RevocationReason::silent:
      return "silent";
    case RevocationReason::forced:
      return "forced";
    case RevocationReason::count_:
      break;
  }
  return "unknown";
}

void ExposureMetrics::for_each(
    const std::function<void(std::string_view, std::string_view, std::int64_t)>& visit) const {
  const auto one = [&visit](std::string_view what, const std::atomic<std::int64_t>& value) {
    visit(what, "", value.load());
  };
  one("ciuic_exposure_sessions_active", sessions);
  one("ciuic_exposure_grants_active", grants);
  one("ciuic_exposure_chunk_leases_active", chunk_leases);
  one("ciuic_exposure_regions_active", regions);
  one("ciuic_exposure_regions_bytes", exposed_bytes);
  one("ciuic_exposure_chunks_draining", draining_chunks);
  one("ciuic_exposure_sessions_total", sessions_total);
  one("ciuic_exposure_grants_total", grants_total);
  one("ciuic_exposure_renewals_total", renewals_total);
  one("ciuic_exposure_waits_total", waits_total);
  one("ciuic_exposure_bring_ins_total", bring_ins_total);
  one("ciuic_exposure_slot_writes_total", slot_writes_total);
  one("ciuic_exposure_retry_after_total", retry_after_total);
  one("ciuic_exposure_use_fetch_total", use_fetch_total);
  one("ciuic_exposure_deregister_failures_total", deregister_failures_total);
  for (std::size_t i = 0; i < refusals.size(); ++i)
    visit("ciuic_exposure_refusals_total", name(static_cast<RefusalReason>(i)), refusals[i].load());
  for (std::size_t i = 0; i < revocations.size(); ++i)
    visit("ciuic_exposure_revocations_total", name(static_cast<RevocationReason>(i)), revocations[i].load());
}

}  // namespace ciuic::broker
