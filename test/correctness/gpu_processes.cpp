// More than one process: a child after fork, and eight that use the device at once and end in different ways.
//
// A fork has the memory of its parent but not its threads, and a driver cannot go on in it. Where the parent has used
// Vulkan, a call in the child is one clear error, frees are harmless, and its exit touches nothing; where it has not,
// the child makes a context of its own. The parent goes on in either case. Every child is waited for with a limit: one
// that hangs is killed and fails the test.
//
// Stock on lavapipe: the child hangs.

#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<int32_t, 1>;
using std::chrono::milliseconds;

constexpr int kPatience_s = 20;

// The exit code of a child; -1 where a signal ended it, our own after kPatience_s included.
int exit_code_of(pid_t child) {
    int status = 0;
    for (int i = 0; i < kPatience_s * 1000; i++) {
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        std::this_thread::sleep_for(milliseconds(1));
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

// Runs `what` in a fork; it returns whether all was as it must be. The child ends as a process does, with its exit
// handlers and destructors, where the driver allows it.
int in_a_fork(const std::function<bool()> &what) {
    const pid_t child = fork();
    if (child != 0) return exit_code_of(child);
    const int code = what() ? 0 : 1;
    if (hv_layer_told_vendor(0x10de)) {
        // Of NVIDIA's driver (580) an exit handler crashes in any child, one that calls nothing of ours too.
        fflush(nullptr);
        _exit(code);
    }
    exit(code);
}

class GpuProcesses : public ::testing::Test {
protected:
    Callable kernel = line_kernel(2);
    Context context;

    // 0 and the right values, or an error code.
    int run(int add = 5) {
        Words in(3000), out(3000);
        fill(in, [](const int *p) { return p[0]; });
        int code = kernel(context.jit(), in, add, out);
        if (code == 0) code = out.copy_to_host(context.raw());
        if (code == 0) {
            EXPECT_TRUE(matches(out, [&](const int *p) { return p[0] * 2 + add; }));
        }
        return code;
    }
    void works() {
        context.clear();
        EXPECT_EQ(run(), 0) << context.all();
    }
    bool is_refused() {
        context.clear();
        return run() < 0 && one_message(context, {"fork"});
    }
    void TearDown() override { vulkan_interface()->device_release(nullptr, vulkan_interface()); }
};

// Nothing of Vulkan is there to inherit, so the child has a context of its own, and so has the parent. Must be the
// first test that uses Vulkan.
TEST_F(GpuProcesses, AForkBeforeTheFirstUseHasAFreshContext) {
    ASSERT_EQ(hv_layer_instances(), 0u);
    EXPECT_EQ(in_a_fork([&] { return run() == 0 && hv_layer_instances() == 1; }), 0);
    works();
    EXPECT_EQ(hv_layer_instances(), 1u);
}

TEST_F(GpuProcesses, AForkedChildIsRefused) {
    works();
    EXPECT_EQ(in_a_fork([&] { return is_refused() && is_refused(); }), 0);
    works();
}

// The parent's launches are under way; its buffers live in both processes, and each frees them.
TEST_F(GpuProcesses, AForkWithWorkInFlight) {
    works();
    Words in(200000), out(200000);
    fill(in, [](const int *p) { return p[0]; });
    for (int i = 0; i < 30; i++) ASSERT_OK(kernel(in, i, out));
    EXPECT_EQ(in_a_fork([&] {
                  context.clear();
                  const bool refused = out.copy_to_host(context.raw()) < 0 && one_message(context, {"fork"});
                  context.clear();
                  const bool freed = in.device_free(context.raw()) == 0 && out.device_free(context.raw()) == 0;
                  return refused && freed && context.errors.empty() && is_refused();
              }),
              0);
    ASSERT_OK(kernel(in, 77, out));
    ASSERT_OK(out.copy_to_host());
    EXPECT_TRUE(matches(out, [](const int *p) { return p[0] * 2 + 77; }));
}

// Calls that need the device are refused, each with one message; those that do not say nothing.
TEST_F(GpuProcesses, EveryCallOfAForkedChildReturns) {
    works();
    Words in(100), out(100);
    fill(in, [](const int *p) { return p[0]; });
    ASSERT_OK(kernel(in, 1, out));
    EXPECT_EQ(in_a_fork([&] {
                  const halide_device_interface_t *vulkan = vulkan_interface();
                  Words fresh(100);
                  int refused = 0;
                  const auto call = [&](const std::function<int()> &what) {
                      context.clear();
                      refused += what() < 0 && one_message(context, {"fork"});
                  };
                  call([&] { return vulkan->device_malloc(context.raw(), fresh.raw_buffer(), vulkan); });
                  call([&] { return vulkan->copy_to_device(context.raw(), fresh.raw_buffer(), vulkan); });
                  call([&] { return vulkan->copy_to_host(context.raw(), out.raw_buffer()); });
                  call([&] { return vulkan->buffer_copy(context.raw(), out.raw_buffer(), nullptr, fresh); });
                  call([&] { return vulkan->device_sync(context.raw(), out.raw_buffer()); });
                  call([&] { return run(); });
                  context.clear();
                  vulkan->device_release(context.raw(), vulkan);
                  int major = -1, minor = -1;
                  const int asked = vulkan->compute_capability(context.raw(), &major, &minor);
                  const bool silent = context.errors.empty() && asked == 0 && major == 0;
                  std::printf("refused %d of 6; silent %d; last: %s\n", refused, silent, context.all().c_str());
                  return refused == 6 && silent;
              }),
              0);
    works();
}

// The fork comes while other threads are inside calls, and hold what locks of the runtime they may. (No copies,
// crops or launches: Halide holds a lock of its own around those, and a child of that moment waits for it in Halide.)
TEST_F(GpuProcesses, AForkWhileOthersWork) {
    works();
    std::atomic<bool> stop{false};
    std::vector<std::thread> others;
    for (int i = 0; i < 3; i++) {
        others.emplace_back([&] {
            const halide_device_interface_t *vulkan = vulkan_interface();
            Context mine;
            while (!stop) {
                Words words(500);
                EXPECT_EQ(words.device_malloc(vulkan, mine.raw()), 0) << mine.all();
                EXPECT_EQ(words.device_sync(mine.raw()), 0) << mine.all();
                EXPECT_EQ(words.device_free(mine.raw()), 0) << mine.all();
            }
        });
    }
    for (int i = 0; i < 50; i++) EXPECT_EQ(in_a_fork([&] { return is_refused(); }), 0) << "fork " << i;
    stop = true;
    for (std::thread &thread : others) thread.join();
    works();
}

TEST_F(GpuProcesses, AForkOfAFork) {
    works();
    EXPECT_EQ(in_a_fork([&] { return is_refused() && in_a_fork([&] { return is_refused(); }) == 0; }), 0);
    works();
}

// ---------------------------------------------------------------------------------------------------------------------

// Eight processes at once. Each is this program again, with one of the tests below.

// Says that this one is ready, and waits until all eight are. HV_GATE names two pipes: one that ends when the gate
// opens, and one that takes a byte of each.
void meet() {
    int gate = -1, ready = -1;
    const char *pipes = std::getenv("HV_GATE");
    ASSERT_TRUE(pipes && std::sscanf(pipes, "%d %d", &gate, &ready) == 2) << "HV_GATE names no pipes";
    char byte = 1;
    ASSERT_EQ(write(ready, &byte, 1), 1);
    ASSERT_EQ(read(gate, &byte, 1), 0);
}
[[noreturn]] void leave(void (*how)(int) = std::exit) {
    how(testing::Test::HasFailure() ? 1 : 0);
    std::abort();
}

class DISABLED_GpuProcess : public GpuProcesses {
protected:
    void SetUp() override { meet(); }
    void TearDown() override {}
    // Launches that nobody waits for.
    void leave_in_flight() {
        static Words in(100000), out(100000);
        in.fill(1);
        in.set_host_dirty();
        for (int i = 0; i < 30; i++) ASSERT_OK(kernel(in, i, out));
    }
};

TEST_F(DISABLED_GpuProcess, Returns) { works(); }
TEST_F(DISABLED_GpuProcess, ReturnsWithWorkInFlight) {
    works();
    leave_in_flight();
}
TEST_F(DISABLED_GpuProcess, Exits) {
    works();
    leave();
}
TEST_F(DISABLED_GpuProcess, ExitsFromAnotherThread) {
    works();
    leave_in_flight();
    std::thread([] { leave(); }).join();
}
TEST_F(DISABLED_GpuProcess, ExitsQuickly) {
    works();
    leave_in_flight();
    leave(std::quick_exit);
}
TEST_F(DISABLED_GpuProcess, ExitsAtOnce) {
    works();
    leave_in_flight();
    leave(_exit);
}
TEST_F(DISABLED_GpuProcess, ReturnsAfterRelease) {
    works();
    leave_in_flight();
    vulkan_interface()->device_release(nullptr, vulkan_interface());
}
TEST_F(DISABLED_GpuProcess, ReturnsAfterReleaseAll) {
    works();
    kernel = Callable();
    Internal::JITSharedRuntime::release_all();
}

TEST(GpuProcessesAtOnce, Eight) {
    const char *tests[] = {"Returns",
                           "ReturnsWithWorkInFlight",
                           "Exits",
                           "ExitsFromAnotherThread",
                           "ExitsQuickly",
                           "ExitsAtOnce",
                           "ReturnsAfterRelease",
                           "ReturnsAfterReleaseAll"};
    int gate[2], ready[2];
    ASSERT_EQ(pipe2(gate, 0), 0);
    ASSERT_EQ(pipe2(ready, 0), 0);
    for (int ours : {gate[1], ready[0]}) ASSERT_EQ(fcntl(ours, F_SETFD, FD_CLOEXEC), 0);
    ASSERT_EQ(setenv("HV_GATE", (std::to_string(gate[0]) + " " + std::to_string(ready[1])).c_str(), 1), 0);
    std::vector<pid_t> children;
    for (const char *test : tests) {
        const std::string filter = std::string("--gtest_filter=DISABLED_GpuProcess.") + test;
        const char *arguments[] = {"gpu_processes", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr};
        pid_t child = -1;
        ASSERT_EQ(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, (char **)arguments, environ), 0);
        children.push_back(child);
    }
    close(gate[0]);
    close(ready[1]);
    // Fewer bytes than eight: the others ended without having come so far.
    int there = 0;
    for (char byte; there < 8 && read(ready[0], &byte, 1) == 1;) there++;
    EXPECT_EQ(there, 8);
    close(gate[1]);
    for (size_t i = 0; i < children.size(); i++) EXPECT_EQ(exit_code_of(children[i]), 0) << tests[i];
}

}  // namespace
