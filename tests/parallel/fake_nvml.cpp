// A library with the functions of NVML that weft calls: three GPUs, two of them linked directly
// and by a switch, the last with MIG instances and unknown to any PCI tree.
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct Memory {
  unsigned long long total, free, used;
};

struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, status;
  unsigned long long value;
};

constexpr const char* kBusIds[] = {"00000000:18:00.0", "00000000:B4:00.0", "00000000:FF:00.0"};
constexpr uintptr_t kMig = 100;

uintptr_t number(void* device) { return reinterpret_cast<uintptr_t>(device) - 1; }
void* handle(uintptr_t number) { return reinterpret_cast<void*>(number + 1); }
constexpr int kFailed = 3;

// Links 0-3 of the first two join them, the next 2 and 3 lead to a switch.
bool to_peer(unsigned link) { return link < 4; }

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }

int nvmlDeviceGetCount_v2(unsigned* n) {
  *n = 3;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = handle(index);
  return 0;
}

int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  std::snprintf(info->bus_id, sizeof info->bus_id, "%s", kBusIds[number(device)]);
  return 0;
}

int nvmlDeviceGetName(void*, char* name, unsigned bytes) {
  std::snprintf(name, bytes, "Fake GPU");
  return 0;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned bytes) {
  if (number(device) >= kMig)
    std::snprintf(uuid, bytes, "MIG-fake-%zu", static_cast<size_t>(number(device) - kMig));
  else
    std::snprintf(uuid, bytes, "GPU-fake-%zu", static_cast<size_t>(number(device)));
  return 0;
}

int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  memory->total = 80ull << 30;
  return 0;
}

int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* pending) {
  *now = *pending = number(device) == 2 ? 1 : 0;
  return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* n) {
  *n = 7;
  return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** device) {
  if (index >= 2) return kFailed;
  *device = handle(kMig + index);
  return 0;
}

int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  if (number(device) > 1 || link >= 18) return kFailed;
  *active = link < 6 + number(device) ? 1 : 0;
  return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned link, unsigned* type) {
  *type = to_peer(link) ? 0 : 2;
  return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* info) {
  if (!to_peer(link)) return kFailed;
  std::snprintf(info->bus_id, sizeof info->bus_id, "%s", kBusIds[1 - number(device)]);
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  for (uintptr_t i = 0; i < 3; ++i)
    if (std::strcmp(kBusIds[i] + 4, bus_id) == 0) {
      *device = handle(i);
      return 0;
    }
  return kFailed;
}

// Of all links together: each reading counts 3 KiB more of the first GPU's raw bytes, of the second
// only its payload is counted, of the third nothing.
int nvmlDeviceGetFieldValues(void* device, int n, FieldValue* values) {
  static unsigned long long readings = 0;
  for (int i = 0; i < n; ++i) {
    FieldValue& value = values[i];
    const bool raw = value.field == 140 || value.field == 141;
    const bool data = value.field == 138 || value.field == 139;
    const bool counted = number(device) == 0 ? raw || data : number(device) == 1 && data;
    value.status = counted && value.scope == ~0u ? 0 : kFailed;
    if (value.status == 0) value.value = raw ? 3 * ++readings : 1000 + value.field;
  }
  return 0;
}
}
