// SHA-256 of a byte string, as lower-case hex. Names plans and model facts.
#pragma once

#include <string>
#include <string_view>

namespace weft {

std::string sha256_hex(std::string_view bytes);

}  // namespace weft
