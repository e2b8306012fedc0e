// vulkan_features.h: what a kernel may need of a device beyond plain Vulkan, under the names of both sides. [pure]
//
// A kernel says what it needs by SPIR-V capabilities, a device what it has by features. A driver that is given a kernel
// beyond its features may compile it, compute nonsense or crash; so a launch compares the two first, and its error
// names the feature. Capabilities that are not listed here are the driver's to judge.
//
// Thread rule: none, values only.

#ifndef HALIDE_VULKAN_FEATURES_H
#define HALIDE_VULKAN_FEATURES_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

enum Feature : uint32_t {
    kFloat64 = 1,
    kInt64 = 2,
    kInt16 = 4,
    kFloat16 = 8,
    kInt8 = 16,
    kStorage16 = 32,
    kStorage8 = 64,
    kAtomics64 = 128,
};
// Of an application's device: what it switched on cannot be asked, so everything is let through.
constexpr uint32_t kAllFeatures = 0xffffffffu;

// The feature a capability stands for; 0 where none of the above. The two forms of each storage capability differ in
// whether uniform blocks count too; a device that has the storage buffers' alone is given the benefit of the doubt.
inline uint32_t feature_of_capability(uint32_t capability) {
    switch (capability) {
    case 9: return kFloat16;       // Float16
    case 10: return kFloat64;      // Float64
    case 11: return kInt64;        // Int64
    case 12: return kAtomics64;    // Int64Atomics
    case 22: return kInt16;        // Int16
    case 39: return kInt8;         // Int8
    case 4433:                     // StorageBuffer16BitAccess
    case 4434: return kStorage16;  // UniformAndStorageBuffer16BitAccess
    case 4448:                     // StorageBuffer8BitAccess
    case 4449: return kStorage8;   // UniformAndStorageBuffer8BitAccess
    default: return 0;
    }
}

// "64-bit integers (shaderInt64), ..."
HALIDE_VULKAN_COLD inline void tell_features(uint32_t features, Text &text) {
    const struct {
        uint32_t feature;
        const char *name;
    } names[] = {
        {kFloat64, "64-bit floats (shaderFloat64)"},
        {kInt64, "64-bit integers (shaderInt64)"},
        {kInt16, "16-bit integers (shaderInt16)"},
        {kFloat16, "16-bit floats (shaderFloat16)"},
        {kInt8, "8-bit integers (shaderInt8)"},
        {kStorage16, "16-bit values in buffers (storageBuffer16BitAccess)"},
        {kStorage8, "8-bit values in buffers (storageBuffer8BitAccess)"},
        {kAtomics64, "64-bit atomics (shaderBufferInt64Atomics)"},
    };
    const char *before = "";
    for (const auto &one : names) {
        if (!(features & one.feature)) continue;
        text << before << one.name;
        before = ", ";
    }
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_FEATURES_H
