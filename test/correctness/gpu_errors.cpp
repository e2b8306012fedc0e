// Bad input: one clear message that names what was asked and the limit, a Halide error code, no crash, and the next
// good call works.
//
// Every test ends with the same good pipeline. Limits of the device come from the counting layer where the test must
// choose them (see CMakeLists.txt); the others are the device's own, asked through Vulkan by nobody but the runtime, so
// tests look for what was asked and for the word that names the limit.
//
// Stock: fails (several messages or none, -36 for everything, a crash on a damaged blob).

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<int32_t, 1>;

class GpuErrors : public ::testing::Test {
protected:
    Var x{"x"}, xo{"xo"}, xi{"xi"};
    Context context;

    void good_call_works() {
        ImageParam input(Int(32), 1, "input");
        Func f("good");
        f(x) = input(x) * 2;
        f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
        Callable kernel = f.compile_to_callable({input}, gpu_target());
        Words in(100), out(100);
        fill(in, [](const int *p) { return p[0]; });
        ASSERT_OK(kernel(in, out));
        ASSERT_OK(out.copy_to_host());
        ASSERT_TRUE(matches(out, [](const int *p) { return p[0] * 2; }));
    }
    // The call fails with one message that holds these parts, twice over, and does no harm.
    template<typename Call>
    void fails(Call &&call, const std::vector<std::string> &parts, int code = 0) {
        good_call_works();
        for (int time = 0; time < 2; time++) {
            context.clear();
            const int got = call();
            if (code) {
                EXPECT_EQ(got, code);
            } else {
                EXPECT_LT(got, 0);
            }
            EXPECT_TRUE(one_message(context, parts));
            good_call_works();
        }
    }
};

TEST_F(GpuErrors, SharedMemoryOverTheLimit) {
    // 19,032 words; lavapipe has 32 KiB, NVIDIA 48.
    Func h("h"), k("k");
    h(x) = x * 3;
    k(x) = h(x) + h(x + 19000);
    k.gpu_tile(x, xo, xi, 32, TailStrategy::GuardWithIf);
    h.compute_at(k, xo).split(x, x, xi, 32, TailStrategy::GuardWithIf).gpu_threads(xi);
    Callable kernel = k.compile_to_callable({}, gpu_target());
    Words out(64);
    fails([&] { return kernel(context.jit(), out); }, {"shared", "76128"});
}

TEST_F(GpuErrors, TooManyThreadsPerGroup) {
    Func f("f");
    f(x) = x;
    f.gpu_tile(x, xi, 4096, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({}, gpu_target());
    Words out(5000);
    fails([&] { return kernel(context.jit(), out); }, {"4096"});
}

TEST_F(GpuErrors, TooManyThreadsPerGroupByParameter) {
    Param<int> size("size");
    Func f("f");
    f(x) = x;
    f.gpu_tile(x, xi, size, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({size}, gpu_target());
    Words out(70000);
    fails([&] { return kernel(context.jit(), 50000, out); }, {"50000"});
    // The same kernel with a size that fits.
    ASSERT_OK(kernel(64, out));
    ASSERT_OK(out.copy_to_host());
    EXPECT_TRUE(matches(out, [](const int *p) { return p[0]; }));
}

// More than any machine has; Halide's own checks let it pass with the large_buffers target feature.
TEST_F(GpuErrors, AllocationThatCannotBe) {
    const halide_device_interface_t *interface = vulkan_interface();
    halide_dimension_t shape[3] = {{0, 1 << 20, 1, 0}, {0, 1 << 20, 1 << 20, 0}, {0, 1 << 10, 1 << 30, 0}};
    halide_buffer_t buffer = {};
    buffer.type = halide_type_of<uint8_t>();
    buffer.dimensions = 3;
    buffer.dim = shape;
    fails([&] { return interface->device_malloc(context.raw(), &buffer, interface); }, {"2197949513728"},
          halide_error_code_device_malloc_failed);
    EXPECT_EQ(buffer.device, 0u);
    EXPECT_EQ(buffer.device_interface, nullptr);
}

// A buffer that says it has dimensions and has no list of them; dimensions that are no number of them.
TEST_F(GpuErrors, BuffersWithoutTheirDimensions) {
    const halide_device_interface_t *interface = vulkan_interface();
    halide_buffer_t buffer = {};
    buffer.type = halide_type_of<uint8_t>();
    const auto allocate = [&] { return interface->device_malloc(context.raw(), &buffer, interface); };
    buffer.dimensions = 3;
    fails(allocate, {"a buffer of 3 dimensions has no list of them"}, halide_error_code_device_malloc_failed);
    buffer.dimensions = -1;
    fails(allocate, {"-1 dimensions"});
    EXPECT_EQ(buffer.device, 0u);
}

// An interface of another device API, made up here, that can do nothing: its buffers must be refused, never read as if
// they were ours.
struct ForeignDevice {
    static int nothing(void *, halide_buffer_t *) { return 0; }
    static int cannot(void *, halide_buffer_t *, const halide_device_interface_t *, halide_buffer_t *) {
        return halide_error_code_incompatible_device_interface;
    }
    static void modules() {}
};

TEST_F(GpuErrors, BufferOfAnotherDeviceApi) {
    const halide_device_interface_t *interface = vulkan_interface();
    // The inner table: 16 pointers, of which the first two count modules and the eleventh is buffer_copy.
    void *functions[16] = {(void *)ForeignDevice::modules, (void *)ForeignDevice::modules};
    for (int i = 2; i < 16; i++) functions[i] = (void *)ForeignDevice::nothing;
    functions[10] = (void *)ForeignDevice::cannot;
    halide_device_interface_t foreign = *interface;
    foreign.impl = (const halide_device_interface_impl_t *)functions;

    ImageParam input(Int(32), 1, "input");
    Func f("f");
    f(x) = input(x) * 2;
    f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({input}, gpu_target());
    Words other(100), out(100);
    other.raw_buffer()->device = 0x1234;
    other.raw_buffer()->device_interface = &foreign;
    other.raw_buffer()->set_device_dirty(true);
    fails([&] { return kernel(context.jit(), other, out); }, {}, halide_error_code_incompatible_device_interface);
    fails([&] { return interface->copy_to_device(context.raw(), other.raw_buffer(), interface); }, {},
          halide_error_code_incompatible_device_interface);

    // Neither side can do this copy: ours says "incompatible" in silence, so that Halide may try another way.
    context.clear();
    EXPECT_EQ(interface->buffer_copy(context.raw(), other.raw_buffer(), interface, out.raw_buffer()),
              halide_error_code_incompatible_device_interface);
    EXPECT_LE(context.errors.size(), 1u) << context.all();
    auto *detach = runtime_call<int(void *, halide_buffer_t *)>("halide_vulkan_detach_vk_buffer");
    EXPECT_EQ(detach(context.raw(), other.raw_buffer()), halide_error_code_incompatible_device_interface);
    other.raw_buffer()->device = 0;
    other.raw_buffer()->device_interface = nullptr;
    other.raw_buffer()->set_device_dirty(false);
    good_call_works();
}

// A handle that no runtime ever gave out.
TEST_F(GpuErrors, MadeUpHandle) {
    const halide_device_interface_t *interface = vulkan_interface();
    Words out(100);
    for (uint64_t handle : {0x1ull, 0xdeadbeefull, 0x7fffffff00000001ull, ~0ull}) {
        out.raw_buffer()->device = handle;
        out.raw_buffer()->device_interface = interface;
        out.raw_buffer()->set_device_dirty(true);
        fails([&] { return interface->copy_to_host(context.raw(), out.raw_buffer()); }, {},
              halide_error_code_copy_to_host_failed);
        out.raw_buffer()->set_device_dirty(false);
        out.raw_buffer()->device = 0;
        out.raw_buffer()->device_interface = nullptr;
    }
}

}  // namespace
