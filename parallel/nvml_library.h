// NVML by dlopen: functions by name, with the types of its stable interface. Never linked, so that
// weft starts on machines without a driver.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

namespace weft::parallel {

using NvmlDevice = void*;

struct NvmlPciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

struct NvmlFieldValue {  // nvmlFieldValue_t
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency_us;
  int type;
  int status;
  unsigned long long value;
};

class NvmlLibrary {
 public:
  explicit NvmlLibrary(const std::string& file)
      : library_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), close) {}
  ~NvmlLibrary() {
    if (started_) call("nvmlShutdown");
  }
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  bool loaded() const { return library_ != nullptr; }

  // True where the function is there and succeeds.
  template <class... Args>
  bool call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library_.get(), name));
    return function != nullptr && function(args...) == 0;
  }

  bool start() { return started_ = call("nvmlInit_v2"); }

 private:
  static void close(void* library) {
    if (library != nullptr) dlclose(library);
  }

  std::unique_ptr<void, void (*)(void*)> library_;
  bool started_ = false;
};

}  // namespace weft::parallel
