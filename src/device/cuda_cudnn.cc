// The functions below have the library's own names and signatures. They are hidden: the library, once open,
// finds its own. The frontend's headers also name functions of NVRTC, for kernels that are never asked for
// here; those fail.
#include "device/cuda_cudnn.h"

#if WYCH_CUDNN

#include <cudnn.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include "base/check.h"

namespace wych::device {
namespace {

constexpr const char* kName = "libcudnn.so.9";
constexpr std::size_t kOldest = 91002;  // gradients of 9.10.0 and 9.10.1 are wrong

struct Library {
  void* handle = nullptr;
  std::string reason;  // why not
};

Library open_library() {
  Library library{dlopen(kName, RTLD_NOW | RTLD_LOCAL), ""};
  if (library.handle == nullptr) {
    const char* reason = dlerror();
    library.reason = reason != nullptr ? reason : "no reason given";
  }
  return library;
}

// Opened once in the life of the process and never closed.
const Library& library() {
  static const Library library = open_library();
  return library;
}

void* find(const char* name) {
  void* found = library().handle != nullptr ? dlsym(library().handle, name) : nullptr;
  WYCH_CHECK(found != nullptr, "{} has no {}", kName, name);
  return found;
}

std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

std::string cudnn_problem() {
  if (library().handle == nullptr) {
    return fmt::format(
        "cuDNN is missing ({}); install libcudnn9, or name the folder of {} in LD_LIBRARY_PATH",
        library().reason, kName);
  }
  if (cudnnGetVersion() < kOldest) {
    return fmt::format("cuDNN is {}, older than {}; install a later libcudnn9", cudnn_version(),
                       version_text(kOldest));
  }
  return "";
}

std::string cudnn_version() { return version_text(cudnnGetVersion()); }

}  // namespace wych::device

// Looks the function up in the library and calls it.
#define WYCH_CUDNN_FORWARD(type, name, parameters, arguments)                                      \
  extern "C" __attribute__((visibility("hidden"))) type name parameters {                          \
    static const auto function = reinterpret_cast<decltype(&(name))>(::wych::device::find(#name)); \
    return function arguments;                                                                     \
  }                                                                                                \
  static_assert(true)

WYCH_CUDNN_FORWARD(size_t, cudnnGetVersion, (), ());
WYCH_CUDNN_FORWARD(const char*, cudnnGetErrorString, (cudnnStatus_t status), (status));
WYCH_CUDNN_FORWARD(void, cudnnGetLastErrorString, (char* message, size_t size), (message, size));
WYCH_CUDNN_FORWARD(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), (handle));
WYCH_CUDNN_FORWARD(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle));
WYCH_CUDNN_FORWARD(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream),
                   (handle, stream));
WYCH_CUDNN_FORWARD(cudnnStatus_t, cudnnGetStream, (cudnnHandle_t handle, cudaStream_t* stream),
                   (handle, stream));
WYCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendCreateDescriptor,
                   (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor),
                   (type, descriptor));
WYCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor),
                   (descriptor));
WYCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), (descriptor));
WYCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendSetAttribute,
                   (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                    cudnnBackendAttributeType_t type, int64_t count, const void* values),
                   (descriptor, name, type, count, values));
WYCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendGetAttribute,
                   (const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                    cudnnBackendAttributeType_t type, int64_t capacity, int64_t* count, void* values),
                   (descriptor, name, type, capacity, count, values));
WYCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendExecute,
                   (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack),
                   (handle, plan, pack));

#define WYCH_NVRTC_MISSING(name, parameters)                                     \
  extern "C" __attribute__((visibility("hidden"))) nvrtcResult name parameters { \
    return NVRTC_ERROR_INTERNAL_ERROR;                                           \
  }                                                                              \
  static_assert(true)

WYCH_NVRTC_MISSING(nvrtcCreateProgram,
                   (nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*));
WYCH_NVRTC_MISSING(nvrtcDestroyProgram, (nvrtcProgram*));
WYCH_NVRTC_MISSING(nvrtcCompileProgram, (nvrtcProgram, int, const char* const*));
WYCH_NVRTC_MISSING(nvrtcGetCUBINSize, (nvrtcProgram, size_t*));
WYCH_NVRTC_MISSING(nvrtcGetCUBIN, (nvrtcProgram, char*));
WYCH_NVRTC_MISSING(nvrtcGetProgramLogSize, (nvrtcProgram, size_t*));
WYCH_NVRTC_MISSING(nvrtcGetProgramLog, (nvrtcProgram, char*));

#else  // a build without cuDNN's headers

namespace wych::device {

std::string cudnn_problem() { return "this build has no cuDNN"; }
std::string cudnn_version() { return "none"; }

}  // namespace wych::device

#endif
