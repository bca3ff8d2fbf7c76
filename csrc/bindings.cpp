// The Python module ffpa._C: the list of compiled kernels, how they were built, and their launch.
// Shapes, strides and dtypes are checked on the Python side, before anything arrives here.

#include <cuda_runtime_api.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

#include "params.h"
#include "registry.h"

namespace py = pybind11;

namespace ffpa {
namespace {

std::string dotted_version(int version) {  // 13000 is 13.0, 12040 is 12.4
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const Instance& find_instance(std::string_view name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const Instance*> map;
    for (const Instance& instance : all_instances())
      map.emplace(instance.name, &instance);
    return map;
  }();
  auto found = by_name.find(name);
  if (found == by_name.end()) {
    throw std::invalid_argument("no kernel named '" + std::string(name) +
                                "' in this build: ffpa.kernels() lists all");
  }
  return *found->second;
}

std::string no_image_text(const Instance& instance, int device) {
  std::string text = "built for sm_";
  for (const char* arch : instance.archs) {
    if (arch != instance.archs.front()) text += ", sm_";
    text += arch;
  }
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return text + ", but device " + std::to_string(device) + " is sm_" + std::to_string(major) +
         std::to_string(minor) + ": choose a kernel built for it, or rebuild with FFPA_CUDA_ARCHS";
}

std::string driver_text() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) return "no CUDA driver: in a container, add --gpus all";
  return "the driver supports CUDA " + dotted_version(driver) + ", this build needs " +
         dotted_version(runtime) + ": update the driver";
}

void require_success(cudaError_t status, const Instance& instance, int device) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // else the next launch would report this error as its own
  std::string text = std::string(instance.name) + ": " + cudaGetErrorName(status) + ", ";
  if (status == cudaErrorNoKernelImageForDevice) {
    text += no_image_text(instance, device);
  } else if (status == cudaErrorInsufficientDriver) {
    text += driver_text();
  } else {
    text += cudaGetErrorString(status);
  }
  throw std::runtime_error(text);
}

// Makes a device current, and the one before again at the end.
class DeviceGuard {
 public:
  DeviceGuard(const Instance& instance, int device) {
    require_success(cudaGetDevice(&previous_), instance, device);
    require_success(cudaSetDevice(device), instance, device);
  }
  ~DeviceGuard() { cudaSetDevice(previous_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

ScoreMask to_mask(int kind, uintptr_t values, const std::array<int64_t, 4>& strides) {
  return {.kind = static_cast<ScoreMask::Kind>(kind),
          .values = reinterpret_cast<const void*>(values),
          .batch = strides[0],
          .head = strides[1],
          .row = strides[2],
          .column = strides[3]};
}

using StrideTuple = std::array<int64_t, 3>;  // batch, head, row, in elements

Strides to_strides(const StrideTuple& strides) {
  return {strides[0], strides[1], strides[2]};
}

void forward(std::string_view name, uintptr_t q, uintptr_t k, uintptr_t v, uintptr_t out,
             uintptr_t lse, const StrideTuple& q_strides, const StrideTuple& k_strides,
             const StrideTuple& v_strides, const StrideTuple& out_strides, int batch, int nheads_q,
             int nheads_kv, int seqlen_q, int seqlen_k, int headdim, int headdim_v, double scale,
             int diagonal, int mask_kind, uintptr_t mask,
             const std::array<int64_t, 4>& mask_strides, int splits, uintptr_t split_out,
             uintptr_t split_state, int device, uintptr_t stream) {
  constexpr double kLog2e = 1.4426950408889634;  // the kernels work with exp2
  const ForwardParams params = {
      .q = reinterpret_cast<const void*>(q),
      .k = reinterpret_cast<const void*>(k),
      .v = reinterpret_cast<const void*>(v),
      .out = reinterpret_cast<void*>(out),
      .lse = reinterpret_cast<float*>(lse),
      .q_strides = to_strides(q_strides),
      .k_strides = to_strides(k_strides),
      .v_strides = to_strides(v_strides),
      .out_strides = to_strides(out_strides),
      .batch = batch,
      .nheads_q = nheads_q,
      .nheads_kv = nheads_kv,
      .seqlen_q = seqlen_q,
      .seqlen_k = seqlen_k,
      .headdim = headdim,
      .headdim_v = headdim_v,
      .scale_log2 = static_cast<float>(scale * kLog2e),
      .diagonal = diagonal,
      .mask = to_mask(mask_kind, mask, mask_strides),
      .splits = splits,
      .split_out = reinterpret_cast<float*>(split_out),
      .split_state = reinterpret_cast<float*>(split_state),
  };
  const Instance& instance = find_instance(name);
  const DeviceGuard guard(instance, device);
  const cudaError_t status = instance.kernel.launch(params, reinterpret_cast<cudaStream_t>(stream));
  require_success(status, instance, device);
}

// None: the kernel needs no clusters.
std::optional<int> resident_clusters(std::string_view name, int device) {
  const Instance& instance = find_instance(name);
  if (instance.kernel.resident_clusters == nullptr) return std::nullopt;
  const DeviceGuard guard(instance, device);
  int count = 0;
  require_success(instance.kernel.resident_clusters(count), instance, device);
  return count;
}

py::list kernels() {
  py::list list;
  for (const Instance& instance : all_instances()) {
    const KernelInfo& kernel = instance.kernel;
    py::dict entry;
    entry["name"] = instance.name;
    entry["id"] = kernel.id;
    entry["dtype"] = kernel.dtype;
    entry["acc"] = kernel.acc;
    entry["headdim"] = kernel.headdim;
    entry["variant"] = instance.variant;
    entry["fallback"] = instance.fallback;
    entry["narrow"] = instance.narrow;
    entry["max_seqlen_k"] = instance.max_seqlen_k;
    entry["Br"] = kernel.Br;
    entry["Bc"] = kernel.Bc;
    entry["masks"] = instance.masks;
    entry["splits"] = instance.splits;
    entry["ctas"] = kernel.ctas;
    entry["num_threads"] = kernel.num_threads;
    entry["smem_bytes"] = kernel.smem_bytes;
    entry["archs"] = instance.archs;
    entry["lesson"] = instance.lesson;
    entry["reason"] = instance.reason;
    list.append(entry);
  }
  return list;
}

py::object build_info() {
  py::object info = py::module_::import("json").attr("loads")(build_info_json());
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);  // of the static library: no driver needed
  info["cuda_runtime"] = dotted_version(runtime);
  return info;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Compiled FFPA kernels. Loading it starts no CUDA runtime and needs no driver.";
  m.def("kernels", &kernels, "One dict per compiled kernel, in the order of kernels.toml.");
  m.def("resident_clusters", &resident_clusters,
        "How many clusters of the kernel `name` a device runs at once, 0 if it can schedule none;\n"
        "None for a kernel that needs no clusters. The device must be one it was compiled for.",
        py::arg("name"), py::arg("device_index"));
  m.def("build_info", &build_info,
        "How this module was compiled: architectures, flags, compilers, source hash, and what\n"
        "ptxas reported per kernel and architecture.");
  m.def(
      "forward", &forward, py::call_guard<py::gil_scoped_release>(),
      "Launch the kernel `name` on a stream. Pointers and the stream are integers (lse_ptr 0:\n"
      "not wanted), strides (batch, head, row) in elements, scale is the softmax scale, > 0;\n"
      "query row i sees the keys j <= i + diagonal that the mask does not hide: mask_kind 0 none,\n"
      "1 boolean, 2 of the inputs' type, 3 F32, with its strides in elements. With splits > 1,\n"
      "where the kernel splits keys, split_out_ptr and split_state_ptr are F32 memory as\n"
      "params.h says.\n"
      "ValueError: no such kernel. RuntimeError: CUDA refused, with kernel and error named.",
      py::arg("name"), py::arg("q_ptr"), py::arg("k_ptr"), py::arg("v_ptr"), py::arg("out_ptr"),
      py::arg("lse_ptr"), py::arg("q_strides"), py::arg("k_strides"), py::arg("v_strides"),
      py::arg("out_strides"), py::arg("batch"), py::arg("nheads_q"), py::arg("nheads_kv"),
      py::arg("seqlen_q"), py::arg("seqlen_k"), py::arg("headdim"), py::arg("headdim_v"),
      py::arg("scale"), py::arg("diagonal"), py::arg("mask_kind"), py::arg("mask_ptr"),
      py::arg("mask_strides"), py::arg("splits"), py::arg("split_out_ptr"),
      py::arg("split_state_ptr"), py::arg("device_index"), py::arg("stream_ptr"));
}

}  // namespace ffpa
