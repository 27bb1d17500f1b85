// Which batches a reader of committed records sees.
#include <gtest/gtest.h>

#include "client/core/consumer_impl.h"

namespace ciuic::client {
namespace {

kafka::RecordBatchView make_batch(Buffer& memory, std::int64_t base, std::int64_t producer, bool transactional,
                                  bool control) {
  kafka::RecordBatchBuilder builder;
  kafka::RecordToWrite record;
  record.value = as_bytes(std::string_view("x"));
  builder.add(record);
  kafka::BatchHeader header;
  header.base_offset = kafka::Offset(base);
  header.producer_id = kafka::ProducerId(producer);
  header.transactional = transactional;
  header.control = control;
  EXPECT_TRUE(builder.finish(header, memory));
  return *kafka::RecordBatchView::parse(memory);
}

TEST(AbortedFilter, LeavesOutWhatWasAbortedAndAllMarkers) {
  core::AbortedFilter filter;
  filter.start({{kafka::ProducerId(7), kafka::Offset(20)}, {kafka::ProducerId(7), kafka::Offset(10)}});
  struct Case {
    std::int64_t base, producer;
    bool transactional, control, seen;
  };
  for (const auto& one :
       {Case{5, 7, true, false, true}, Case{10, 7, true, false, false}, Case{11, 8, true, false, true},
        Case{12, 7, false, false, true}, Case{13, 7, true, true, false}, Case{14, 7, true, false, true},
        Case{15, 7, true, true, false}, Case{20, 7, true, false, false}, Case{21, 7, true, true, false},
        Case{22, 7, true, false, true}}) {
    Buffer memory;
    EXPECT_EQ(filter.passes(make_batch(memory, one.base, one.producer, one.transactional, one.control)), one.seen)
        << "at " << one.base;
  }
}

}  // namespace
}  // namespace ciuic::client
