// A name of a model, GPU or engine that is none of those shipped; the text lists them.
#pragma once

#include "runtime/base/error.h"

namespace weft::planner {

class UnknownName : public Error {
 public:
  using Error::Error;
};

}  // namespace weft::planner
