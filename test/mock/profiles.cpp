// profiles.cpp: the devices the mock can be.
//
// Each is what sets a kind of device apart for this runtime, with numbers from public device reports; what does not
// matter here (image limits and the like) stays 0. A profile is made by changing the first, a plain discrete GPU.

#include "profiles.h"

namespace mock {

namespace {

constexpr uint64_t kKiB = 1ull << 10, kMiB = 1ull << 20, kGiB = 1ull << 30;
constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kVisible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
constexpr VkMemoryPropertyFlags kCoherent = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
constexpr VkQueueFlags kGraphics = VK_QUEUE_GRAPHICS_BIT, kCompute = VK_QUEUE_COMPUTE_BIT;
constexpr VkQueueFlags kTransfer = VK_QUEUE_TRANSFER_BIT;

Profile plain() {
    Profile p = {};
    p.name = "plain";
    p.device = "Mock discrete GPU";
    p.type = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    p.loader_version = p.version = VK_API_VERSION_1_3;
    p.buffer_alignment = 16;
    p.storage_alignment = 16;
    p.uniform_alignment = 64;
    p.atom = 64;
    p.copy_alignment = 1;
    p.storage_range = 0xffffffffu;
    p.uniform_range = 64 * kKiB;
    p.groups[0] = 0x7fffffffu;
    p.groups[1] = p.groups[2] = 65535;
    p.group_size[0] = p.group_size[1] = 1024;
    p.group_size[2] = 64;
    p.invocations = 1024;
    p.shared_bytes = 48 * kKiB;
    p.push_bytes = 256;
    p.storage_buffers = 1 << 20;
    // Device memory the CPU does not see, and two kinds of host memory.
    p.heaps = {{16 * kGiB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {32 * kGiB, 0}};
    p.types = {{kLocal, 0}, {kVisible | kCoherent, 1}, {kVisible | kCoherent | kCached, 1}};
    p.families = {{kGraphics | kCompute | kTransfer, 4, 64, {1, 1, 1}}};
    p.instance_extensions = {"VK_KHR_get_physical_device_properties2", "VK_EXT_debug_utils"};
    p.extensions = {"VK_KHR_timeline_semaphore"};
    p.int64 = p.int16 = p.float64 = p.storage8 = p.storage16 = p.float16 = p.int8 = p.timeline = true;
    return p;
}

// Vulkan 1.0 and nothing beyond it, with the least limits that the specification demands.
Profile vulkan10() {
    Profile p = plain();
    p.name = "vulkan10";
    p.device = "Mock Vulkan 1.0 GPU";
    p.loader_version = p.version = VK_API_VERSION_1_0;
    p.buffer_alignment = p.storage_alignment = p.uniform_alignment = p.atom = 256;
    p.storage_range = 128 * kMiB;
    p.uniform_range = 16 * kKiB;
    p.groups[0] = 65535;
    p.group_size[0] = p.group_size[1] = p.invocations = 128;
    p.shared_bytes = 16 * kKiB;
    p.push_bytes = 128;
    p.storage_buffers = 4;
    p.instance_extensions = p.extensions = {};
    p.int64 = p.int16 = p.float64 = p.storage8 = p.storage16 = p.float16 = p.int8 = p.timeline = false;
    return p;
}

// Vulkan 1.0 behind a loader that knows more, and the extensions that small types need.
Profile old() {
    Profile p = plain();
    p.name = "old";
    p.device = "Mock older GPU";
    p.version = VK_API_VERSION_1_0;
    p.extensions = {"VK_KHR_storage_buffer_storage_class", "VK_KHR_16bit_storage", "VK_KHR_8bit_storage",
                    "VK_KHR_shader_float16_int8"};
    p.timeline = false;
    return p;
}

// A telephone's: one heap, cached memory is not coherent, wide alignments.
Profile mobile() {
    Profile p = plain();
    p.name = "mobile";
    p.device = "Mock mobile GPU";
    p.type = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    p.loader_version = p.version = VK_API_VERSION_1_1;
    p.buffer_alignment = p.storage_alignment = p.uniform_alignment = p.atom = 256;
    p.copy_alignment = 64;
    p.storage_range = 128 * kMiB;
    p.groups[0] = 65535;
    p.group_size[0] = p.group_size[1] = p.group_size[2] = p.invocations = 384;
    p.shared_bytes = 32 * kKiB;
    p.push_bytes = 128;
    p.storage_buffers = 35;
    p.heaps = {{4 * kGiB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}};
    p.types = {{kLocal, 0}, {kLocal | kVisible | kCoherent, 0}, {kLocal | kVisible | kCached, 0}};
    p.families = {{kGraphics | kCompute | kTransfer, 1, 0, {1, 1, 1}}};
    p.float64 = p.int64 = p.storage8 = p.int8 = p.timeline = false;
    return p;
}

Profile adreno() {
    Profile p = mobile();
    p.name = "adreno";
    p.device = "Mock Adreno";
    p.buffer_alignment = 64;
    p.storage_alignment = p.uniform_alignment = p.atom = 64;
    p.groups[0] = p.groups[1] = p.groups[2] = 65535;
    p.group_size[0] = p.group_size[1] = p.invocations = 1024;
    p.group_size[2] = 64;
    p.types = {{kLocal, 0},
               {kLocal | kVisible | kCoherent, 0},
               {kLocal | kVisible | kCached, 0},
               {kLocal | kVisible | kCoherent | kCached, 0}};
    p.storage_buffers = 24;
    p.storage16 = false;  // 16-bit arithmetic without 16-bit storage
    // Advertised, but broken on drivers in use: see tests of timelines.
    p.version = VK_API_VERSION_1_1;
    return p;
}

// A Raspberry Pi's: Vulkan 1.2 with next to no optional types.
Profile v3d() {
    Profile p = mobile();
    p.name = "v3d";
    p.device = "Mock V3D 7.1";
    p.loader_version = VK_API_VERSION_1_3;
    p.version = VK_API_VERSION_1_2;
    p.buffer_alignment = 256;
    p.storage_alignment = p.uniform_alignment = 32;
    p.atom = 256;
    p.storage_range = 1 * kGiB - 1;
    p.group_size[0] = p.group_size[1] = p.group_size[2] = p.invocations = 256;
    p.shared_bytes = 16 * kKiB;
    p.push_bytes = 128;
    p.storage_buffers = 8;
    p.heaps = {{4 * kGiB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}};
    p.types = {{kLocal | kVisible | kCoherent, 0}, {kLocal | kVisible | kCached, 0}};
    p.storage16 = p.storage8 = p.float16 = p.int8 = p.int16 = p.int64 = p.float64 = false;
    p.timeline = true;
    return p;
}

// Metal underneath: listed only to who asks for such devices, and one more extension to switch on.
Profile moltenvk() {
    Profile p = plain();
    p.name = "moltenvk";
    p.device = "Mock Apple GPU";
    p.type = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    p.loader_version = VK_API_VERSION_1_3;
    p.version = VK_API_VERSION_1_2;
    p.buffer_alignment = 16;
    p.storage_alignment = p.uniform_alignment = 16;
    p.atom = 16384;
    p.groups[0] = p.groups[1] = p.groups[2] = 1 << 30;
    p.shared_bytes = 32 * kKiB;
    p.push_bytes = 4096;
    p.storage_buffers = 31;
    p.heaps = {{16 * kGiB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}};
    p.types = {{kLocal, 0}, {kLocal | kVisible | kCoherent | kCached, 0}, {kLocal | kVisible | kCoherent, 0}};
    p.families = {{kGraphics | kCompute | kTransfer, 1, 64, {1, 1, 1}},
                  {kGraphics | kCompute | kTransfer, 1, 64, {1, 1, 1}}};
    p.instance_extensions.push_back("VK_KHR_portability_enumeration");
    p.extensions.push_back("VK_KHR_portability_subset");
    p.float64 = false;
    return p;
}

// A GPU whose CPU-visible window is 256 MiB of its memory.
Profile window() {
    Profile p = plain();
    p.name = "window";
    p.device = "Mock GPU with a window";
    p.heaps = {
        {8 * kGiB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {32 * kGiB, 0}, {256 * kMiB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}};
    p.types = {{kLocal, 0},
               {kVisible | kCoherent, 1},
               {kVisible | kCoherent | kCached, 1},
               {kLocal | kVisible | kCoherent, 2}};
    return p;
}

// One that is full after 64 MiB.
Profile small() {
    Profile p = plain();
    p.name = "small";
    p.device = "Mock GPU with little memory";
    p.heaps = {{64 * kMiB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {64 * kMiB, 0}};
    return p;
}

// A laptop's: one memory, all of it coherent and cached.
Profile unified() {
    Profile p = plain();
    p.name = "unified";
    p.device = "Mock integrated GPU";
    p.type = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    p.buffer_alignment = 64;
    p.groups[0] = 65535;
    p.storage_range = 1 * kGiB;
    p.heaps = {{16 * kGiB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}};
    p.types = {{kLocal | kVisible | kCoherent, 0}, {kLocal | kVisible | kCoherent | kCached, 0}};
    p.families = {{kGraphics | kCompute | kTransfer, 1, 36, {1, 1, 1}}};
    return p;
}

// One memory again, which is full after 64 MiB, and what the CPU reads of it at full speed is not coherent.
Profile tight() {
    Profile p = unified();
    p.name = "tight";
    p.device = "Mock integrated GPU with little memory";
    p.heaps = {{64 * kMiB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}};
    p.types = {{kLocal | kVisible | kCoherent, 0}, {kLocal | kVisible | kCached, 0}};
    return p;
}

// A driver that runs out of descriptor sets soon.
Profile few_sets() {
    Profile p = plain();
    p.name = "few_sets";
    p.device = "Mock GPU with few descriptor sets";
    p.sets_of_a_pool = 16;
    return p;
}

// An NVIDIA H200: all of its memory is visible, and it has families of several kinds.
Profile h200() {
    Profile p = plain();
    p.name = "h200";
    p.device = "Mock H200";
    p.heaps = {{140 * kGiB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {128 * kGiB, 0}};
    p.types = {{0, 1},
               {kLocal, 0},
               {kVisible | kCoherent, 1},
               {kVisible | kCoherent | kCached, 1},
               {kLocal | kVisible | kCoherent, 0}};
    p.families = {{kGraphics | kCompute | kTransfer, 16, 64, {1, 1, 1}},
                  {kTransfer, 2, 64, {1, 1, 1}},
                  {kCompute | kTransfer, 8, 64, {1, 1, 1}},
                  {kTransfer, 4, 64, {1, 1, 1}}};
    p.extensions.push_back("VK_EXT_calibrated_timestamps");
    return p;
}

// As the H200, but its compute family has no timestamps.
Profile untimed() {
    Profile p = h200();
    p.name = "untimed";
    p.families[2].timestampValidBits = 0;
    return p;
}

// As the H200, and every call returns at once: see mock.h.
Profile null() {
    Profile p = h200();
    p.name = "null";
    p.device = "Mock null GPU";
    return p;
}

}  // namespace

const Profile *find_profile(const std::string &name) {
    // Made at the first question, which the constructor of another file may ask; never destroyed.
    static const std::vector<Profile> &all =
        *new std::vector<Profile>{plain(), vulkan10(), old(),   mobile(),   adreno(), v3d(),     moltenvk(), window(),
                                  small(), unified(),  tight(), few_sets(), h200(),   untimed(), null()};
    for (const Profile &p : all) {
        if (name == p.name) return &p;
    }
    return nullptr;
}

}  // namespace mock
