#pragma once
#include <boost/system/result.hpp>

namespace ciuic {

/// A value or the reason there is none. `E` is the room's own error: kafka::Error, rdma::Fault, ….
template <class T, class E>
using ResultOf = boost::system::result<T, E>;

}  // namespace ciuic
