// Where the shipped models, profiles and clusters lie.
#pragma once

#include <string>

namespace weft::launch {

// `given` where it is not empty; else share/weft/configs beside an installed binary's bin, or the
// configs of the source tree that the binary was built in, or ./configs. Throws Error with the
// places where none is there.
std::string config_folder(const std::string& given);

}  // namespace weft::launch
