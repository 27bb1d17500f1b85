// The thread for what blocks: what gives memory back overtakes what pins more.
#include "broker/exposure/worker.h"

#include <gtest/gtest.h>

#include <future>
#include <string>

namespace ciuic::broker {
namespace {

TEST(Worker, FirstOnesOvertakeAndOrderWithinATurnIsKept) {
  std::string order;
  std::promise<void> go;
  {
    Worker worker;
    worker.run([&, began = go.get_future()] { began.wait(); }, Turn::last);
    worker.run([&] { order += "a"; }, Turn::last);
    worker.run([&] { order += "b"; }, Turn::last);
    worker.run([&] { order += "1"; }, Turn::first);
    worker.run([&] { order += "2"; }, Turn::first);
    go.set_value();
    worker.stop();
    worker.run([&] { order += "!"; }, Turn::last);
  }
  EXPECT_EQ(order, "12ab!");
}

}  // namespace
}  // namespace ciuic::broker
