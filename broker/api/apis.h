#pragma once
#include <optional>

#include "broker/api/handler.h"

/// The handlers' declarations, one line each. Every one answers with Kafka's error codes and throws nothing.
namespace ciuic::kafka {
#define CIUIC_DECLARE(name) \
  struct name##Request;     \
  struct name##Response;
CIUIC_DECLARE(ApiVersions)
CIUIC_DECLARE(CreatePartitions)
CIUIC_DECLARE(CreateTopics)
CIUIC_DECLARE(DeleteGroups)
CIUIC_DECLARE(DeleteRecords)
CIUIC_DECLARE(DeleteTopics)
CIUIC_DECLARE(DescribeCluster)
CIUIC_DECLARE(DescribeConfigs)
CIUIC_DECLARE(DescribeGroups)
CIUIC_DECLARE(Fetch)
CIUIC_DECLARE(FindCoordinator)
CIUIC_DECLARE(Heartbeat)
CIUIC_DECLARE(IncrementalAlterConfigs)
CIUIC_DECLARE(InitProducerId)
CIUIC_DECLARE(JoinGroup)
CIUIC_DECLARE(LeaveGroup)
CIUIC_DECLARE(ListGroups)
CIUIC_DECLARE(ListOffsets)
CIUIC_DECLARE(Metadata)
CIUIC_DECLARE(OffsetCommit)
CIUIC_DECLARE(OffsetDelete)
CIUIC_DECLARE(OffsetFetch)
CIUIC_DECLARE(OffsetForLeaderEpoch)
CIUIC_DECLARE(OneSidedConnect)
CIUIC_DECLARE(OneSidedGrant)
CIUIC_DECLARE(OneSidedRelease)
CIUIC_DECLARE(OneSidedRenew)
CIUIC_DECLARE(OneSidedWait)
CIUIC_DECLARE(Produce)
CIUIC_DECLARE(SyncGroup)
#undef CIUIC_DECLARE
}  // namespace ciuic::kafka

namespace ciuic::broker::api {

Awaitable<kafka::ApiVersionsResponse> api_versions(RequestContext& context, kafka::ApiVersionsRequest request);
Awaitable<kafka::CreatePartitionsResponse> create_partitions(RequestContext& context,
                                                             kafka::CreatePartitionsRequest request);
Awaitable<kafka::CreateTopicsResponse> create_topics(RequestContext& context, kafka::CreateTopicsRequest request);
Awaitable<kafka::DeleteGroupsResponse> delete_groups(RequestContext& context, kafka::DeleteGroupsRequest request);
Awaitable<kafka::DeleteRecordsResponse> delete_records(RequestContext& context, kafka::DeleteRecordsRequest request);
Awaitable<kafka::DeleteTopicsResponse> delete_topics(RequestContext& context, kafka::DeleteTopicsRequest request);
Awaitable<kafka::DescribeClusterResponse> describe_cluster(RequestContext& context,
                                                           kafka::DescribeClusterRequest request);
Awaitable<kafka::DescribeConfigsResponse> describe_configs(RequestContext& context,
                                                           kafka::DescribeConfigsRequest request);
Awaitable<kafka::DescribeGroupsResponse> describe_groups(RequestContext& context, kafka::DescribeGroupsRequest request);
Awaitable<kafka::FetchResponse> fetch(RequestContext& context, kafka::FetchRequest request);
Awaitable<kafka::FindCoordinatorResponse> find_coordinator(RequestContext& context,
                                                           kafka::FindCoordinatorRequest request);
Awaitable<kafka::HeartbeatResponse> heartbeat(RequestContext& context, kafka::HeartbeatRequest request);
Awaitable<kafka::IncrementalAlterConfigsResponse> incremental_alter_configs(
    RequestContext& context, kafka::IncrementalAlterConfigsRequest request);
Awaitable<kafka::InitProducerIdResponse> init_producer_id(RequestContext& context,
                                                          kafka::InitProducerIdRequest request);
Awaitable<kafka::JoinGroupResponse> join_group(RequestContext& context, kafka::JoinGroupRequest request);
Awaitable<kafka::LeaveGroupResponse> leave_group(RequestContext& context, kafka::LeaveGroupRequest request);
Awaitable<kafka::ListGroupsResponse> list_groups(RequestContext& context, kafka::ListGroupsRequest request);
Awaitable<kafka::ListOffsetsResponse> list_offsets(RequestContext& context, kafka::ListOffsetsRequest request);
Awaitable<kafka::MetadataResponse> metadata(RequestContext& context, kafka::MetadataRequest request);
Awaitable<kafka::OffsetCommitResponse> offset_commit(RequestContext& context, kafka::OffsetCommitRequest request);
Awaitable<kafka::OffsetDeleteResponse> offset_delete(RequestContext& context, kafka::OffsetDeleteRequest request);
Awaitable<kafka::OffsetFetchResponse> offset_fetch(RequestContext& context, kafka::OffsetFetchRequest request);
Awaitable<kafka::OffsetForLeaderEpochResponse> offset_for_leader_epoch(RequestContext& context,
                                                                       kafka::OffsetForLeaderEpochRequest request);
Awaitable<kafka::OneSidedConnectResponse> onesided_connect(RequestContext& context,
                                                           kafka::OneSidedConnectRequest request);
Awaitable<kafka::OneSidedGrantResponse> onesided_grant(RequestContext& context, kafka::OneSidedGrantRequest request);
Awaitable<kafka::OneSidedReleaseResponse> onesided_release(RequestContext& context,
                                                           kafka::OneSidedReleaseRequest request);
Awaitable<kafka::OneSidedRenewResponse> onesided_renew(RequestContext& context, kafka::OneSidedRenewRequest request);
Awaitable<kafka::OneSidedWaitResponse> onesided_wait(RequestContext& context, kafka::OneSidedWaitRequest request);
Awaitable<std::optional<kafka::ProduceResponse>> produce(RequestContext& context, kafka::ProduceRequest request);
Awaitable<kafka::SyncGroupResponse> sync_group(RequestContext& context, kafka::SyncGroupRequest request);

}  // namespace ciuic::broker::api
