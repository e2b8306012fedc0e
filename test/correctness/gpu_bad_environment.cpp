// A bad environment: no driver, an unknown layer, options that make no sense, a device that is too small.
//
// Each test belongs to one CTest entry that sets the environment it is about (see CMakeLists.txt) and runs it alone,
// since the environment is read once. Without that environment the tests fail: they prove nothing then. In every case
// the error is one clear message and a code, comes back the same on a second try, and nothing crashes.
//
// Stock: fails (it uses whatever device there is without a word, or gives several messages).

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<int32_t, 1>;

class GpuBadEnvironment : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    Context context;

    Callable compile() {
        Func f("f");
        f(x) = x * 3;
        f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
        return f.compile_to_callable({}, gpu_target());
    }
    // No pipeline works here: each way in says why, once, and again when asked again.
    void nothing_works(const std::vector<std::string> &parts) {
        Callable kernel = compile();
        Words out(100);
        for (int time = 0; time < 3; time++) {
            context.clear();
            EXPECT_LT(kernel(context.jit(), out), 0);
            EXPECT_TRUE(one_message(context, parts));
        }
        context.clear();
        EXPECT_EQ(vulkan_interface()->device_malloc(context.raw(), out.raw_buffer(), vulkan_interface()),
                  halide_error_code_device_malloc_failed);
        EXPECT_TRUE(one_message(context, parts));
        EXPECT_FALSE(host_supports_target_device(gpu_target()));
        // Nothing to release, and nothing to complain about.
        context.clear();
        vulkan_interface()->device_release(context.raw(), vulkan_interface());
        EXPECT_EQ(context.all(), "");
        // What asks for the device's abilities gets "none", not an error.
        int major = -1, minor = -1;
        EXPECT_EQ(vulkan_interface()->compute_capability(context.raw(), &major, &minor), 0);
        EXPECT_EQ(context.all(), "");
        capability = major * 10 + minor;
    }
    void something_works() {
        Callable kernel = compile();
        Words out(100);
        ASSERT_EQ(kernel(context.jit(), out), 0) << context.all();
        ASSERT_OK(out.copy_to_host());
        EXPECT_TRUE(matches(out, [](const int *p) { return p[0] * 3; }));
        EXPECT_EQ(context.all(), "");
    }
    int capability = -1;
};

// VK_ICD_FILENAMES and VK_DRIVER_FILES name a file that is not there; then the first alone does.
TEST_F(GpuBadEnvironment, NoDriver) {
    nothing_works({"no driver", "VK_DRIVER_FILES is '/no/such/driver.json'"});
    EXPECT_EQ(capability, 0);
    unsetenv("VK_DRIVER_FILES");
    nothing_works({"no driver", "VK_ICD_FILENAMES is '/no/such/driver.json'"});
}

// HL_VK_LAYERS=VK_LAYER_NOT_installed
TEST_F(GpuBadEnvironment, UnknownLayer) { nothing_works({"VK_LAYER_NOT_installed", "HL_VK_LAYERS"}); }

// HL_VK_DEVICE_TYPE=banana
TEST_F(GpuBadEnvironment, UnknownDeviceType) { nothing_works({"banana", "HL_VK_DEVICE_TYPE"}); }

// HL_VK_DEVICE_TYPE=discrete-gpu, and the layer says that the device is a CPU.
TEST_F(GpuBadEnvironment, NoDeviceOfThatType) { nothing_works({"discrete-gpu", "cpu"}); }

// HL_VK_DEVICE_TYPE=cpu, and the layer says that the device is a CPU.
TEST_F(GpuBadEnvironment, DeviceOfThatType) { something_works(); }

// HL_VK_QUEUE=compute, and the layer says that every queue family does graphics as well.
TEST_F(GpuBadEnvironment, NoQueueForComputeAlone) { nothing_works({"HL_VK_QUEUE", "'compute'", "graphics"}); }

// HL_VK_QUEUE=graphics, and the layer says that none does.
TEST_F(GpuBadEnvironment, NoQueueForGraphics) { nothing_works({"HL_VK_QUEUE", "'graphics'", "compute"}); }

// The same, the other way round.
TEST_F(GpuBadEnvironment, QueueForGraphics) { something_works(); }
TEST_F(GpuBadEnvironment, QueueForComputeAlone) { something_works(); }

// HL_VK_SYNC=timeline, and the layer says that the device has no timeline semaphores.
TEST_F(GpuBadEnvironment, NoTimeline) { nothing_works({"HL_VK_SYNC", "timeline"}); }

// The same device, with nothing forced: fences do.
TEST_F(GpuBadEnvironment, TimelineNotOffered) {
    something_works();
    EXPECT_EQ(hv_layer_live("VkSemaphore"), 0);
    EXPECT_EQ(hv_layer_live("VkFence"), 16);
}

// A timeline that is offered, and refused when it is made: fences do.
TEST_F(GpuBadEnvironment, TimelineThatCannotBeMade) {
    ASSERT_TRUE(hv_layer_fail("vkCreateSemaphore", -1, -1 /* VK_ERROR_OUT_OF_HOST_MEMORY */));
    something_works();
    EXPECT_EQ(hv_layer_live("VkSemaphore"), 0);
    EXPECT_EQ(hv_layer_live("VkFence"), 16);
}

// HL_VK_SYNC=fence on a device that has timelines; and nothing forced, where the timeline is used.
TEST_F(GpuBadEnvironment, FencesForced) {
    something_works();
    EXPECT_EQ(hv_layer_live("VkSemaphore"), 0);
    EXPECT_EQ(hv_layer_live("VkFence"), 16);
}

// HL_VK_DEVICE=no-such-gpu
TEST_F(GpuBadEnvironment, NoDeviceOfThatName) { nothing_works({"HL_VK_DEVICE", "no-such-gpu", "0 = "}); }

// HL_VK_DEVICE=77
TEST_F(GpuBadEnvironment, NoDeviceOfThatIndex) { nothing_works({"HL_VK_DEVICE", "'77'", "index", "0 = "}); }

// HL_GPU_DEVICE=0, and the layer says that the device is a CPU: a GPU was asked for.
TEST_F(GpuBadEnvironment, NoGpuForHlGpuDevice) { nothing_works({"HL_GPU_DEVICE", "number of GPUs is 0", "(cpu)"}); }

// HL_VK_DEVICE=0 with HL_VK_DEVICE_TYPE=gpu, and the layer says that the device is a CPU.
TEST_F(GpuBadEnvironment, NamedDeviceOfAnotherType) { nothing_works({"HL_VK_DEVICE", "'0'", "'gpu'", "(cpu)"}); }

// HL_VK_ALLOC_CONFIG=1:two:3
TEST_F(GpuBadEnvironment, AllocConfigThatIsNoNumber) { nothing_works({"1:two:3", "HL_VK_ALLOC_CONFIG"}); }

// HL_VK_ALLOC_CONFIG=0:32:16: blocks of at least 32 MiB and at most 16.
TEST_F(GpuBadEnvironment, AllocConfigWithoutRoom) {
    nothing_works({"0:32:16", "HL_VK_ALLOC_CONFIG", "32 MB", "16 MB"});
}

// A whole-number option out of its range: HL_VK_FLUSH=99
TEST_F(GpuBadEnvironment, OptionOutOfRange) { nothing_works({"HL_VK_FLUSH", "99"}); }

// A value of 5,000 characters: what the option takes is said all the same.
TEST_F(GpuBadEnvironment, LongNumber) {
    nothing_works({"HL_VK_SPIN is '" + std::string(60, '7') + "...'", "a whole number from 0 to 1"});
}
TEST_F(GpuBadEnvironment, LongWord) { nothing_works({"HL_VK_FLUSH is 'aaa", "aaa...'", "one of auto|count|always"}); }
TEST_F(GpuBadEnvironment, LongAllocConfig) {
    nothing_works({"HL_VK_ALLOC_CONFIG is 'aaa", "aaa...'", "pool_MB:min_block_MB:max_block_MB:max_blocks:multiple"});
}
TEST_F(GpuBadEnvironment, LongDevice) { nothing_works({"HL_VK_DEVICE is 'aaa", "aaa...'", "0 = "}); }
// A list of names that would not fit is not cut: the last of them, or half of one, would be left out in silence.
TEST_F(GpuBadEnvironment, LongLayer) { nothing_works({"list of HL_VK_LAYERS", "'aaa", "aaa...'", "1022 characters"}); }
TEST_F(GpuBadEnvironment, LongExtensions) { nothing_works({"list of HL_VK_EXTENSIONS", "'aaa", "1022 characters"}); }
// 33 names; and 32, none of which the loader offers: those are ignored.
TEST_F(GpuBadEnvironment, ManyExtensions) { nothing_works({"list of HL_VK_EXTENSIONS", "'VK_a:VK_a", "32 names"}); }
TEST_F(GpuBadEnvironment, AsManyExtensionsAsMayBe) { something_works(); }

// HL_GPU_DEVICE=abc, which is 0 to Halide itself.
TEST_F(GpuBadEnvironment, GpuDeviceThatIsNoNumber) {
    nothing_works({"HL_GPU_DEVICE is 'abc'", "whole number", "HL_VK_DEVICE"});
}

// HL_VK_ALLOC_CONFIG=4:1:2:0:32 : a pool of 4 MiB in blocks of at most 2. Refused with the numbers, then all is well.
TEST_F(GpuBadEnvironment, PoolLimit) {
    something_works();
    const halide_device_interface_t *interface = vulkan_interface();
    Words large(nullptr, (3 << 20) / 4);
    EXPECT_EQ(interface->device_malloc(context.raw(), large.raw_buffer(), interface),
              halide_error_code_device_malloc_failed);
    EXPECT_TRUE(one_message(context, {"3145728", "2097152"}));
    context.clear();
    std::vector<Words> many;
    int code = 0;
    for (int i = 0; i < 8 && code == 0; i++) {
        many.emplace_back(nullptr, (1 << 20) / 4);
        code = interface->device_malloc(context.raw(), many.back().raw_buffer(), interface);
    }
    EXPECT_EQ(code, halide_error_code_device_malloc_failed) << "the pool is larger than it may be";
    EXPECT_TRUE(one_message(context, {"1048576", "4194304"}));
    context.clear();
    many.clear();
    something_works();
}

// The layer lets a kernel have 4 storage buffers.
TEST_F(GpuBadEnvironment, TooManyBuffers) {
    something_works();
    Func f("six");
    std::vector<ImageParam> inputs;
    std::vector<Argument> arguments;
    Expr sum = 0;
    for (int i = 0; i < 5; i++) {
        inputs.emplace_back(Int(32), 1, "in" + std::to_string(i));
        arguments.push_back(inputs[i]);
        sum += inputs[i](x);
    }
    f(x) = sum;
    f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable(arguments, gpu_target());
    Words in(100), out(100);
    in.fill(1);
    in.set_host_dirty();
    for (int time = 0; time < 2; time++) {
        context.clear();
        EXPECT_LT(kernel(context.jit(), in, in, in, in, in, out), 0);
        EXPECT_TRUE(one_message(context, {"6", "4", "maxPerStageDescriptorStorageBuffers"}));
        context.clear();
        something_works();
    }
}

// The layer's device can bind 4,096 bytes: more can be allocated and copied, but not bound.
TEST_F(GpuBadEnvironment, BufferOverTheBindingLimit) {
    something_works();
    ImageParam input(Int(32), 1, "input");
    Func f("f");
    f(x) = input(x) + 1;
    f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({input}, gpu_target());
    Words large(5000), out(100);
    fill(large, [](const int *p) { return p[0] * 7; });
    ASSERT_OK(large.copy_to_device(vulkan_interface()));
    for (int time = 0; time < 2; time++) {
        context.clear();
        EXPECT_LT(kernel(context.jit(), large, out), 0);
        EXPECT_TRUE(one_message(context, {"20000", "4096", "maxStorageBufferRange"}));
    }
    std::memset(large.data(), 0, 20000);
    large.set_device_dirty();
    ASSERT_OK(large.copy_to_host());
    EXPECT_TRUE(matches(large, [](const int *p) { return p[0] * 7; }));
    // A crop that fits can be bound.
    {
        Words crop = large.cropped(0, 1000, 100);
        crop.raw_buffer()->dim[0].min = 0;
        ASSERT_OK(kernel(crop, out));
    }
    ASSERT_OK(out.copy_to_host());
    EXPECT_TRUE(matches(out, [](const int *p) { return (1000 + p[0]) * 7 + 1; }));
    context.clear();
    something_works();
}

// The layer's device has 64 MiB. Twice that is refused, and what fits still works.
TEST_F(GpuBadEnvironment, DeviceMemoryIsFull) {
    something_works();
    const halide_device_interface_t *interface = vulkan_interface();
    for (int round = 0; round < 3; round++) {
        std::vector<Words> many;
        int code = 0;
        context.clear();
        for (int i = 0; i < 16 && code == 0; i++) {
            many.emplace_back(nullptr, (8 << 20) / 4);
            code = interface->device_malloc(context.raw(), many.back().raw_buffer(), interface);
        }
        EXPECT_EQ(code, halide_error_code_device_malloc_failed);
        EXPECT_TRUE(one_message(context, {"8388608"}));
        EXPECT_GE(many.size(), 5u) << "the memory that is there can be had";
        context.clear();
        many.clear();
        something_works();
    }
}

}  // namespace
