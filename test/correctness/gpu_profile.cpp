// Timing of GPU work: what a launch leaves to do is waited for by the sync, and the profiler books each kernel's time
// to the Func that it computes.
//
// Where a launch returns at once, whoever times it times nothing; and a profiler that looks only where the CPU is would
// find all of the time wherever the first wait happens to be. In profile mode Halide puts a device_sync behind each
// kernel. Counted in `make test`: each kernel then has a submission and a wait of its own. Measured by `make nightly`:
// shares of two kernels whose cost is 1 to 10, and when a launch and its sync return.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count (CMakeLists.txt). Stock: fails (it waits for the whole queue, in
// the launch).

#include "support.h"

#include <algorithm>
#include <chrono>
#include <sstream>

using namespace Halide;
using namespace vulkan_test;

namespace {

constexpr int kWords = 16384;

class GpuProfile : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    ImageParam input{UInt(32), 1, "input"};
    Func light{"light"}, heavy{"heavy"};
    Buffer<uint32_t> in = Buffer<uint32_t>(kWords), out = Buffer<uint32_t>(kWords);

    // `rounds` dependent steps for each element, `times` over.
    void stage(Func &f, Expr from, int rounds, int times) {
        Func walk(f.name() + "_walk");
        RDom r(0, rounds, 0, times);
        walk(x) = from;
        walk(x) = walk(x) * Expr(1664525u) + cast<uint32_t>(r.x);
        f(x) = walk(x);
        f.compute_root().gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        walk.compute_at(f, xi);
    }
    static uint32_t steps(uint32_t v, uint32_t rounds) {
        for (uint32_t r = 0; r < rounds; r++) v = v * 1664525u + r;
        return v;
    }
    void make(int light_rounds, int heavy_rounds, int times = 1) {
        light = Func("light");
        heavy = Func("heavy");
        stage(light, input(x), light_rounds, times);
        stage(heavy, light(x), heavy_rounds, times);
        in.fill(5);
        in.set_host_dirty();
        input.set(in);
    }
    // The same with kernels that take `wanted` seconds on this device, or somewhat more.
    Callable make_long(double wanted) {
        for (int times = 1;; times = (int)(times * std::clamp(1.5 * wanted / took, 2.0, 1000.0))) {
            make(3000, 30000, times);
            Callable kernel = heavy.compile_to_callable({input}, gpu_target());
            EXPECT_EQ(kernel(in, out), 0);
            EXPECT_EQ(out.device_sync(), 0);
            const auto begin = Clock::now();
            EXPECT_EQ(kernel(in, out), 0);
            EXPECT_EQ(out.device_sync(), 0);
            took = seconds(Clock::now() - begin);
            if (took > wanted || HasFailure()) return kernel;
        }
    }
    using Clock = std::chrono::steady_clock;
    static double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }
    double took = 1;
    // "    heavy:      223.729ms (77.5%)" -> 77.5; -1: not in the report.
    static double share_of(const Context &context, const Func &func) {
        std::stringstream report;
        for (const std::string &print : context.prints) report << print;
        for (std::string line; std::getline(report, line);) {
            const size_t at = line.find(" " + func.name() + ":"), open = line.find('(');
            if (at != std::string::npos && open != std::string::npos && open > at)
                return std::atof(line.c_str() + open + 1);
        }
        return -1;
    }
};

TEST_F(GpuProfile, EachKernelIsWaitedFor) {
    make(200, 2000);
    Context context;
    const Target profiled = gpu_target({Target::Profile});
    heavy.realize(context.jit(), out, profiled);
    for (int i = 0; i < 3; i++) {
        context.clear();
        hv_layer_reset();
        heavy.realize(context.jit(), out, profiled);
        EXPECT_EQ(hv_layer_count_prefix("vkCmdDispatch"), 2u);
        EXPECT_EQ(hv_layer_count_prefix("vkQueueSubmit"), 2u) << "they share a submission";
        if (hv_layer_is_cpu()) {  // others are polled
            EXPECT_GE(hv_layer_count("vkWaitForFences") + hv_layer_count("vkWaitSemaphores"), 2u);
        }
        EXPECT_GE(share_of(context, light), 0);
        EXPECT_GE(share_of(context, heavy), 0);
        ASSERT_OK(out.copy_to_host());
        EXPECT_TRUE(matches(out, [](const int *) { return steps(steps(5, 200), 2000); }));
    }
}

// HV_FULL=1, and a quiet machine: the median of five.
TEST_F(GpuProfile, TimeLandsOnTheRightFunc) {
    if (!std::getenv("HV_FULL")) return;
    make_long(0.1);  // the profiler looks every millisecond
    std::vector<double> light_shares, heavy_shares;
    for (int i = 0; i < 6; i++) {
        Context context;
        heavy.realize(context.jit(), out, gpu_target({Target::Profile}));
        if (i == 0) continue;
        light_shares.push_back(share_of(context, light));
        heavy_shares.push_back(share_of(context, heavy));
    }
    std::sort(light_shares.begin(), light_shares.end());
    std::sort(heavy_shares.begin(), heavy_shares.end());
    printf("light %.1f %%, heavy %.1f %%\n", light_shares[2], heavy_shares[2]);
    EXPECT_NEAR(heavy_shares[2], 100.0 * 10 / 11, 20.0);
    EXPECT_NEAR(light_shares[2], 100.0 * 1 / 11, 20.0);
    EXPECT_GT(light_shares[2], 0);
}

// HV_FULL=1: a chain of launches of some 300 ms; they return within a tenth of it, and the sync takes the rest.
TEST_F(GpuProfile, ALaunchReturnsAtOnceAndASyncDoesNot) {
    if (!std::getenv("HV_FULL")) return;
    Callable kernel = make_long(0.02);
    const int count = std::clamp((int)(0.3 / took), 1, 12);
    Clock::time_point begin;
    for (const bool of_buffer : {true, false}) {
        begin = Clock::now();
        for (int i = 0; i < count; i++) ASSERT_OK(kernel(in, out));
        const auto launched = Clock::now();
        ASSERT_OK(of_buffer ? out.device_sync()
                            : runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global")(
                                  nullptr, vulkan_interface()));
        const auto done = Clock::now();
        printf("%d launches returned after %.4f s, the sync after %.4f s\n", count, seconds(launched - begin),
               seconds(done - begin));
        EXPECT_LT(seconds(launched - begin), 0.1 * seconds(done - begin));
    }
}

}  // namespace
