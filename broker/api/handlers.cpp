// The one list. A row's versions are its schema's; a narrower range is a promise that tests/suites holds.
#include "broker/api/handlers.h"

#include <algorithm>
#include <array>

#include "broker/api/apis.h"
#include "transport/kafka/messages/api_versions.h"
#include "transport/kafka/messages/ciuic_onesided.h"
#include "transport/kafka/messages/create_partitions.h"
#include "transport/kafka/messages/create_topics.h"
#include "transport/kafka/messages/delete_groups.h"
#include "transport/kafka/messages/delete_records.h"
#include "transport/kafka/messages/delete_topics.h"
#include "transport/kafka/messages/describe_cluster.h"
#include "transport/kafka/messages/describe_configs.h"
#include "transport/kafka/messages/describe_groups.h"
#include "transport/kafka/messages/fetch.h"
#include "transport/kafka/messages/find_coordinator.h"
#include "transport/kafka/messages/heartbeat.h"
#include "transport/kafka/messages/incremental_alter_configs.h"
#include "transport/kafka/messages/init_producer_id.h"
#include "transport/kafka/messages/join_group.h"
#include "transport/kafka/messages/leave_group.h"
#include "transport/kafka/messages/list_groups.h"
#include "transport/kafka/messages/list_offsets.h"
#include "transport/kafka/messages/metadata.h"
#include "transport/kafka/messages/offset_commit.h"
#include "transport/kafka/messages/offset_delete.h"
#include "transport/kafka/messages/offset_fetch.h"
#include "transport/kafka/messages/offset_for_leader_epoch.h"
#include "transport/kafka/messages/produce.h"
#include "transport/kafka/messages/sync_group.h"

namespace ciuic::broker::api {
namespace {

constexpr std::array rows{
    row<kafka::ProduceRequest, produce>({3, 13}),
    row<kafka::FetchRequest, fetch>(),
    row<kafka::ListOffsetsRequest, list_offsets>({1, 11}),
    row<kafka::MetadataRequest, metadata>(),
    row<kafka::OffsetCommitRequest, offset_commit>(),
    row<kafka::OffsetFetchRequest, offset_fetch>(),
    row<kafka::FindCoordinatorRequest, find_coordinator>(),
    row<kafka::JoinGroupRequest, join_group>(),
    row<kafka::HeartbeatRequest, heartbeat>(),
    row<kafka::LeaveGroupRequest, leave_group>(),
    row<kafka::SyncGroupRequest, sync_group>(),
    row<kafka::DescribeGroupsRequest, describe_groups>(),
    row<kafka::ListGroupsRequest, list_groups>(),
    row<kafka::ApiVersionsRequest, api_versions>(),
    row<kafka::CreateTopicsRequest, create_topics>(),
    row<kafka::DeleteTopicsRequest, delete_topics>(),
    row<kafka::DeleteRecordsRequest, delete_records>(),
    row<kafka::InitProducerIdRequest, init_producer_id>({0, 5}),
    row<kafka::OffsetForLeaderEpochRequest, offset_for_leader_epoch>(),
    row<kafka::DescribeConfigsRequest, describe_configs>(),
    row<kafka::CreatePartitionsRequest, create_partitions>(),
    row<kafka::DeleteGroupsRequest, delete_groups>(),
    row<kafka::IncrementalAlterConfigsRequest, incremental_alter_configs>(),
    row<kafka::OffsetDeleteRequest, offset_delete>(),
    row<kafka::DescribeClusterRequest, describe_cluster>(),
    row<kafka::OneSidedConnectRequest, onesided_connect>(),
    row<kafka::OneSidedGrantRequest, onesided_grant>(),
    row<kafka::OneSidedRenewRequest, onesided_renew>(),
    row<kafka::OneSidedWaitRequest, onesided_wait>(),
    row<kafka::OneSidedReleaseRequest, onesided_release>(),
};
static_assert(std::is_sorted(rows.begin(), rows.end(),
                             [](const Handler& a, const Handler& b) { return a.key < b.key; }));

}  // namespace

std::span<const Handler> handlers() { return rows; }

const Handler* find_handler(std::int16_t key) {
  const auto* const found = std::lower_bound(rows.begin(), rows.end(), key,
                                             [](const Handler& row, std::int16_t wanted) { return row.key < wanted; });
  return found != rows.end() && found->key == key ? found : nullptr;
}

}  // namespace ciuic::broker::api
