#include "broker/broker.h"

namespace ciuic::broker {

const char* version() { return CIUIC_VERSION; }

}  // namespace ciuic::broker
