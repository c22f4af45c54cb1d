// A new file written front to back.
#pragma once

#include <string>
#include <string_view>

namespace weft::runtime {

class OutputFile {
 public:
  explicit OutputFile(const std::string& path);  // throws Error where it exists or can't be made
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // All of it, or an Error with the path and errno's text (a full disk).
  void write(std::string_view bytes);
  void close();  // some file systems say only now that the disk is full

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace weft::runtime
