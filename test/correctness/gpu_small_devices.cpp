// Devices that have less: older Vulkan, no optional types, no timeline, no push descriptors, taken away one at a time
// and all at once.
//
// A pipeline for plain `host-vulkan` needs nothing of that and computes right everywhere. One that needs a type which
// the device lacks is refused before it runs, with one message that names the feature, and the next pipeline works. The
// capability that is told is the device's, not the loader's.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count (CMakeLists.txt). Stock: runs kernels that the device cannot run, with
// no error (lavapipe happens to cope).

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

// Nothing is asked of the device but Vulkan itself.
Target plain_target() { return Target("host-vulkan"); }

// Keys of hv_layer_limit; 0 takes the thing away.
const char *const kOptional[] = {
    "shaderFloat64",
    "shaderInt64",
    "shaderInt16",
    "shaderFloat16",
    "shaderInt8",
    "storageBuffer16BitAccess",
    "uniformAndStorageBuffer16BitAccess",
    "storageBuffer8BitAccess",
    "uniformAndStorageBuffer8BitAccess",
    "timelineSemaphore",
    "synchronization2",
    "maintenance4",
    "scalarBlockLayout",
    "uniformBufferStandardLayout",
    "subgroupSizeControl",
    "bufferDeviceAddress",
    "hostQueryReset",
    "extension:VK_KHR_push_descriptor",
    "extension:VK_KHR_timeline_semaphore",
    "extension:VK_KHR_synchronization2",
    "extension:VK_KHR_16bit_storage",
    "extension:VK_KHR_8bit_storage",
    "extension:VK_KHR_shader_float16_int8",
    "extension:VK_KHR_storage_buffer_storage_class",
    "extension:VK_EXT_memory_budget",
    "extension:VK_EXT_calibrated_timestamps",
};
constexpr uint32_t version(uint32_t minor) { return 1u << 22 | minor << 12; }

class GpuSmallDevices : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    Context context;

    void SetUp() override { another_device(); }
    void TearDown() override {
        another_device();
        EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
        EXPECT_GT(hv_layer_instances(), 0u) << "the counting layer is not in use";
    }
    // What is told of the device is read when the next context is made.
    static void another_device() {
        vulkan_interface()->device_release(nullptr, vulkan_interface());
        hv_layer_clear();
    }

    // Compiled once for all devices, and never destroyed.
    static Callable &ints() {
        static Callable *it = new Callable(line_kernel(3, plain_target()));
        return *it;
    }
    static Callable &floats() {
        static Callable *it = [] {
            Var x("x"), y("y"), xi("xi"), yi("yi");
            ImageParam input(Float(32), 2, "input");
            Param<float> scale("scale");
            Func f("floats");
            f(x, y) = input(x, y) * scale + cast<float>(x) - cast<float>(y);
            f.gpu_tile(x, y, xi, yi, 8, 4, TailStrategy::GuardWithIf);
            return new Callable(f.compile_to_callable({input, scale}, plain_target()));
        }();
        return *it;
    }
    void plain_pipelines_work(const std::string &where) {
        Runtime::Buffer<int, 1> in(1003), out(1003);
        fill(in, [](const int *p) { return p[0] * 7 - 3000; });
        ASSERT_OK(ints()(in, 11, out));
        ASSERT_OK(out.copy_to_host());
        EXPECT_TRUE(matches(out, [](const int *p) { return (p[0] * 7 - 3000) * 3 + 11; })) << where;
        Runtime::Buffer<float, 2> from(77, 19), to(77, 19);
        fill(from, [](const int *p) { return (float)(p[0] + p[1] * 100); });
        ASSERT_OK(floats()(from, 0.5f, to));
        ASSERT_OK(to.copy_to_host());
        EXPECT_TRUE(matches(to, [](const int *p) {
            return (float)(p[0] + p[1] * 100) * 0.5f + (float)p[0] - (float)p[1];
        })) << where;
    }

    template<typename T>
    Callable compile_doubled(const std::vector<Target::Feature> &more = {}) {
        ImageParam input(type_of<T>(), 1, "input");
        Func f("doubled");
        f(x) = input(x) + input(x);
        f.gpu_tile(x, xi, 16, TailStrategy::GuardWithIf);
        return f.compile_to_callable({input}, gpu_target(more));
    }
    // Right on the device as it is; without the feature refused, each time, with a message that names it; and the next
    // pipeline works.
    template<typename T>
    void is_refused_without(const std::vector<const char *> &features, const std::string &name,
                            const std::vector<Target::Feature> &more = {}) {
        Callable kernel = compile_doubled<T>(more);
        Runtime::Buffer<T, 1> in(100), out(100);
        fill(in, [](const int *p) { return p[0]; });
        ASSERT_OK(kernel(in, out));
        ASSERT_OK(out.copy_to_host());
        EXPECT_TRUE(matches(out, [](const int *p) { return p[0] * 2; }));
        in.device_free();
        out.device_free();
        another_device();
        for (const char *feature : features) ASSERT_TRUE(hv_layer_limit(feature, 0));
        in.set_host_dirty();
        for (int time = 0; time < 2; time++) {
            context.clear();
            EXPECT_LT(kernel(context.jit(), in, out), 0) << name;
            EXPECT_TRUE(one_message(context, {"doubled", name}));
            plain_pipelines_work("after a refusal for " + name);
        }
        in.device_free();
        out.device_free();
        another_device();
    }
};

TEST_F(GpuSmallDevices, OneThingLess) {
    for (const char *key : kOptional) {
        another_device();
        ASSERT_TRUE(hv_layer_limit(key, 0)) << key;
        plain_pipelines_work(key);
    }
}

TEST_F(GpuSmallDevices, OlderVulkan) {
    for (uint32_t minor : {0, 1, 2, 3}) {
        for (const bool bare : {false, true}) {
            another_device();
            ASSERT_TRUE(hv_layer_limit("apiVersion", version(minor)));
            for (const char *key : kOptional) {
                ASSERT_TRUE(!bare || hv_layer_limit(key, 0));
            }
            plain_pipelines_work("Vulkan 1." + std::to_string(minor) + (bare ? ", bare" : ""));
            int major = -1, told = -1;
            EXPECT_EQ(vulkan_interface()->compute_capability(nullptr, &major, &told), 0);
            EXPECT_EQ(major, 1);
            EXPECT_EQ(told, (int)minor) << "the capability is the device's";
        }
    }
}

TEST_F(GpuSmallDevices, AKernelBeyondTheDeviceIsRefusedByName) {
    is_refused_without<int64_t>({"shaderInt64"}, "shaderInt64");
    is_refused_without<uint16_t>({"shaderInt16"}, "shaderInt16");
    is_refused_without<uint16_t>({"storageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess"},
                                 "storageBuffer16BitAccess");
    is_refused_without<uint8_t>({"shaderInt8"}, "shaderInt8");
    is_refused_without<uint8_t>({"storageBuffer8BitAccess", "uniformAndStorageBuffer8BitAccess"},
                                "storageBuffer8BitAccess");
    is_refused_without<double>({"shaderFloat64"}, "shaderFloat64", {Target::VulkanFloat64});
}

}  // namespace
