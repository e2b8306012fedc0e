// The process may end in any order: with work in flight, from another thread, after a release, after release_all, after
// the device was lost.
//
// The driver's libraries are torn down by the same exit that runs the runtime's clean-up, and which goes first depends
// on who was loaded when. Each test below leaves the process in another state and belongs to a CTest entry of its own
// (CMakeLists.txt): a crash at exit is a failed entry. Under the validation layer (label validation) the layer's own
// destructors take part in it.
//
// Stock on lavapipe: passes. (Reports of crashes are from NVIDIA, with several processes at once.)

#include "support.h"

#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

Callable compile() {
    Var x("x"), xi("xi");
    ImageParam input(UInt(32), 1, "input");
    Func f("f");
    Expr value = input(x);
    for (int i = 0; i < 20; i++) value = scramble(value);
    f(x) = value;
    f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
    return f.compile_to_callable({input}, gpu_target());
}

// Launches that nobody waits for, on buffers that stay alive until the very end.
void leave_work_in_flight() {
    static Callable kernel = compile();
    static Words a(200000), b(200000);
    a.fill(7);
    a.set_host_dirty();
    for (int i = 0; i < 30; i++) ASSERT_OK(kernel(a, b));
}

void use() {
    Callable kernel = compile();
    Words a(1000), b(1000);
    fill(a, [](const int *p) { return p[0]; });
    ASSERT_OK(kernel(a, b));
    ASSERT_OK(b.copy_to_host());
    EXPECT_TRUE(matches(b, [](const int *p) {
        uint32_t value = p[0];
        for (int i = 0; i < 20; i++) value = scramble(value);
        return value;
    }));
}

// Ends the process from inside a test, with what the test has seen so far.
[[noreturn]] void leave() { std::exit(testing::Test::HasFailure() ? 1 : 0); }

TEST(GpuExit, WithAllDone) { use(); }

TEST(GpuExit, WithWorkInFlight) { leave_work_in_flight(); }

TEST(GpuExit, AfterReleaseAndUse) {
    for (int i = 0; i < 3; i++) {
        use();
        vulkan_interface()->device_release(nullptr, vulkan_interface());
    }
    leave_work_in_flight();
}

TEST(GpuExit, AfterRelease) {
    use();
    vulkan_interface()->device_release(nullptr, vulkan_interface());
}

TEST(GpuExit, FromAnotherThread) {
    leave_work_in_flight();
    std::thread(leave).join();
}

TEST(GpuExit, AfterReleaseAll) {
    use();
    Internal::JITSharedRuntime::release_all();
}

TEST(GpuExit, UsedAfterReleaseAll) {
    use();
    Internal::JITSharedRuntime::release_all();
    use();
}

// Exits while other threads are in the middle of calls.
TEST(GpuExit, WhileOthersWork) {
    for (int i = 0; i < 3; i++) {
        std::thread([] {
            Callable kernel = compile();
            Words *a = new Words(5000), *b = new Words(5000);
            a->fill(1);
            a->set_host_dirty();
            Context *context = new Context;
            while (kernel(context->jit(), *a, *b) == 0) {}
            while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
        }).detach();
    }
    use();
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    leave();
}

// The device is lost with buffers that live and work that nobody waited for. The counting layer loses it.
void lose_the_device() {
    static Callable kernel = compile();
    static Words a(200000), b(200000);
    static Context context;
    fill(a, [](const int *p) { return p[0]; });
    ASSERT_OK(kernel(a, b));
    hv_layer_lose(1);
    int code = 0;
    for (int i = 0; i < 100 && code == 0; i++) code = kernel(context.jit(), a, b);
    EXPECT_LT(code, 0);
}

TEST(GpuExit, AfterTheDeviceWasLost) { lose_the_device(); }

TEST(GpuExit, AfterTheDeviceWasLostAndReplaced) {
    lose_the_device();
    vulkan_interface()->device_release(nullptr, vulkan_interface());
    hv_layer_clear();
    leave_work_in_flight();
    use();
}

TEST(GpuExit, FromAnotherThreadAfterTheDeviceWasLost) {
    lose_the_device();
    std::thread(leave).join();
}

}  // namespace
