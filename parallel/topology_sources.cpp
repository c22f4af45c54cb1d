// Files of either kind, told apart by their root element.
#include "parallel/topology_sources.h"

#include <array>

#include "parallel/xml_tree.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace weft::parallel {

Topology parse_topology(std::string_view text, const std::string& where) {
  const std::string root = parse_xml(text, where).name;
  if (root == "topology") return parse_hwloc_xml(text, where);
  if (root == "system") return parse_nccl_xml(text, where);
  throw input_error("{}: its root element is <{}>: neither hwloc's <topology> nor NCCL's <system>",
                    where, root.substr(0, 40));
}

Topology read_topology(const std::string& path) {
  return parse_topology(read_text(path, kMostXmlBytes), path);
}

}  // namespace weft::parallel
