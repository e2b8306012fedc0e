// A process ends while its first kernel is on its way.
//
// A CPU device compiles a kernel when it first runs. What its compiler makes of its own on that occasion is destroyed
// at exit, before whatever was there earlier: a kernel that is being compiled at that moment never ends (lavapipe, with
// LLVM 15: two of five processes hung). Each child is this program again, with one of the disabled tests.
//
// Stock: passes, since it waits for each launch.

#include "HalideBuffer.h"
#include "HalideRuntime.h"
#include "sines.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include <csignal>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using Halide::Runtime::Buffer;

extern char **environ;

namespace {

constexpr int kTimes = 8;
constexpr int kPatience_s = 30;

Buffer<float, 1> out(64);  // alive until the very end

TEST(DISABLED_GpuAotExit, Return) { ASSERT_EQ(sines(nullptr, 100, out), 0); }

TEST(DISABLED_GpuAotExit, FromAnotherThread) {
    std::thread([] {
        const int code = sines(nullptr, 100, out);
        std::exit(code == 0 && !testing::Test::HasFailure() ? 0 : 1);
    }).join();
}

// The exit code; -1 where a signal ended the child, ours after kPatience_s included.
int code_of(const std::string &test) {
    std::string filter = "--gtest_filter=DISABLED_GpuAotExit." + test, all = "--gtest_also_run_disabled_tests";
    char name[] = "/proc/self/exe";
    char *arguments[] = {name, filter.data(), all.data(), nullptr};
    pid_t child = 0;
    if (posix_spawn(&child, name, nullptr, nullptr, arguments, environ) != 0) return -2;
    int status = 0;
    for (int i = 0; i < kPatience_s * 1000; i++) {
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        usleep(1000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

TEST(GpuAotExit, RightAfterTheFirstLaunch) {
    for (const char *how : {"Return", "FromAnotherThread"}) {
        for (int time = 0; time < kTimes && !HasFailure(); time++) EXPECT_EQ(code_of(how), 0) << how << ", " << time;
    }
}

}  // namespace
