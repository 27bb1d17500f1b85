// The one list, and what ApiVersions makes of it.
#include "broker/api/handlers.h"

#include <gtest/gtest.h>

#include "broker/api/api_versions.h"
#include "broker/api/handler.h"
#include "transport/kafka/messages/produce.h"

namespace ciuic::broker::api {
namespace {

TEST(Handlers, EveryRowIsFoundByItsKeyAndNothingElseIs) {
  ASSERT_FALSE(handlers().empty());
  for (const auto& row : handlers()) {
    EXPECT_EQ(find_handler(row.key), &row);
    EXPECT_NE(row.run, nullptr);
    EXPECT_LE(row.versions.min, row.versions.max) << row.key;
  }
  for (const std::int16_t key :
       {std::int16_t{-1}, std::int16_t{4}, std::int16_t{9999}, std::numeric_limits<std::int16_t>::max()}) {
    EXPECT_EQ(find_handler(key), nullptr) << key;
  }
}

TEST(Handlers, ApiVersionsTellsTheListAndProduceFromZero) {
  const auto told = supported_versions(OneSided::on);
  ASSERT_EQ(told.api_keys.size(), handlers().size());
  for (std::size_t i = 0; i < told.api_keys.size(); ++i) {
    const auto& row = handlers()[i];
    EXPECT_EQ(told.api_keys[i].api_key, row.key);
    EXPECT_EQ(told.api_keys[i].max_version, row.versions.max);
    const bool produce = row.key == kafka::ProduceRequest::api_key;
    EXPECT_EQ(told.api_keys[i].min_version, produce ? 0 : row.versions.min);
    EXPECT_FALSE(produce && row.versions.holds(2)) << "said for librdkafka's sake, not served";
  }
}

TEST(Handlers, ThePrivateApisAreToldOnlyWhereOneSidedReadersAreServed) {
  const auto told = supported_versions(OneSided::off);
  EXPECT_EQ(told.api_keys.size(), handlers().size() - 5);
  for (const auto& one : told.api_keys) EXPECT_LT(one.api_key, 1000) << "no key of Apache's";
}

}  // namespace
}  // namespace ciuic::broker::api
