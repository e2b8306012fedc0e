// Ticks as CPU times, against a device that is simulated in exact arithmetic.

#include <gtest/gtest.h>

#include <random>

#include "vulkan_timestamps.h"

using namespace halide_vulkan;

namespace {

// A device's clock: its ticks at a CPU time. Long double has 64 bits of precision here.
struct Device {
    long double period, offset_ns;
    long double drift = 0;  // parts of one
    uint32_t bits = 64;

    uint64_t ticks(uint64_t cpu_ns) const {
        const long double t = ((long double)cpu_ns * (1 + drift) + offset_ns) / period;
        const uint64_t mask = bits >= 64 ? ~0ull : (1ull << bits) - 1;
        return (uint64_t)t & mask;
    }
};

constexpr uint64_t kStart = 8000000000000;  // ns; a machine that runs for two hours

void expect_near(uint64_t a, uint64_t b, uint64_t tolerance) {
    EXPECT_LE(a > b ? a - b : b - a, tolerance) << a << " and " << b;
}

TEST(Timestamps, Calibrated) {
    // NVIDIA, Intel (two), AMD, and the slowest that is known.
    for (long double period : {1.0L, 52.083332L, 83.333336L, 10.0L, 1000.0L}) {
        for (uint32_t bits : {36u, 48u, 64u}) {
            const Device device = {period, 123456789012.0L, 0, bits};
            Timestamps clock;
            clock.init((float)period, bits);
            EXPECT_FALSE(clock.calibrated());
            EXPECT_TRUE(clock.wants_calibration(kStart));
            clock.calibrate(device.ticks(kStart), kStart);
            EXPECT_TRUE(clock.calibrated());
            for (int64_t distance : {0ll, 1000ll, 1000000ll, 100000000ll, -1000000ll, -100000000ll}) {
                const uint64_t t = kStart + (uint64_t)distance;
                // A tick, and 8 parts in a million of the distance.
                expect_near(clock.cpu_ns(device.ticks(t)), t, (uint64_t)period * 2 + 1 + std::abs(distance) / 120000);
            }
            EXPECT_FALSE(clock.wants_calibration(kStart + 1000));
            EXPECT_TRUE(clock.wants_calibration(kStart + Timestamps::kCalibrateEvery_ns));
        }
    }
}

TEST(Timestamps, BitsThatAreNotValidAreNotRead) {
    Timestamps clock;
    clock.init(1, 36);
    clock.calibrate(0xabc0000000000000ull | 1000, kStart);
    EXPECT_EQ(clock.cpu_ns(0x1230000000000000ull | 3000), kStart + 2000);
}

TEST(Timestamps, WrapsAroundBothWays) {
    for (uint32_t bits : {36u, 40u, 63u, 64u}) {
        const uint64_t top = bits >= 64 ? ~0ull : (1ull << bits) - 1;
        Timestamps clock;
        clock.init(1, bits);
        clock.calibrate(top - 99, kStart);
        EXPECT_EQ(clock.cpu_ns(900), kStart + 1000);
        clock.calibrate(900, kStart);
        EXPECT_EQ(clock.cpu_ns(top - 99), kStart - 1000);
    }
}

// Submissions as a program makes them: each takes a while to begin, runs, and its end is seen a while later.
struct Program {
    std::mt19937_64 random{7};
    uint64_t now = kStart;
    uint64_t submit, begin, end, seen;

    uint64_t between(uint64_t low, uint64_t high) { return low + random() % (high - low + 1); }
    void next(uint64_t most_late) {
        submit = now + between(1000, 1000000);
        begin = submit + between(5000, 30000);
        end = begin + between(2000, 200000);
        seen = end + between(2000, most_late);
        now = seen;
    }
};

TEST(Timestamps, EstimatedLiesInTheWindowOfEachSubmission) {
    for (long double drift : {0.0L, 40e-6L, -40e-6L}) {
        const Device device = {52.083332L, 5e14L, drift, 36};
        Timestamps clock;
        clock.init(52.083332f, 36);
        Program run;
        for (int i = 0; i < 3000; i++) {
            run.next(60000);
            clock.bound(device.ticks(run.begin), device.ticks(run.end), run.submit, run.seen);
            EXPECT_FALSE(clock.calibrated());
            const uint64_t begin = clock.cpu_ns(device.ticks(run.begin)), end = clock.cpu_ns(device.ticks(run.end));
            ASSERT_GE(begin + 60, run.submit) << i;
            ASSERT_LE(end, run.seen + 60) << i;
            // After some submissions it is good to what a launch that is waited for leaves open.
            if (i > 100) expect_near(begin, run.begin, 15000);
        }
    }
}

// One that is seen late says little, and does no harm to what is known.
TEST(Timestamps, ALateLookDoesNotWidenTheEstimate) {
    const Device device = {1, 1e12L};
    Timestamps clock;
    clock.init(1, 64);
    Program run;
    run.next(3000);
    clock.bound(device.ticks(run.begin), device.ticks(run.end), run.submit, run.seen);
    const uint64_t known = clock.cpu_ns(device.ticks(run.begin));
    const uint64_t begin = run.begin;
    for (int i = 0; i < 50; i++) {
        run.next(50000000);
        clock.bound(device.ticks(run.begin), device.ticks(run.end), run.submit, run.seen);
    }
    expect_near(clock.cpu_ns(device.ticks(begin)), known, 100000);
    expect_near(clock.cpu_ns(device.ticks(run.begin)), run.begin, 100000);
}

// The device's clock is set anew (a suspended machine): the next submission counts, not the ones before.
TEST(Timestamps, AClockThatJumpedIsLearntAnew) {
    Device device = {1, 1e12L};
    Timestamps clock;
    clock.init(1, 64);
    Program run;
    for (long double jump : {0.0L, 1e10L, -3e10L}) {
        device.offset_ns += jump;
        for (int i = 0; i < 20; i++) {
            run.next(20000);
            clock.bound(device.ticks(run.begin), device.ticks(run.end), run.submit, run.seen);
            ASSERT_GE(clock.cpu_ns(device.ticks(run.begin)) + 60, run.submit);
            ASSERT_LE(clock.cpu_ns(device.ticks(run.end)), run.seen + 60);
        }
    }
}

TEST(Timestamps, CalibrationEndsEstimation) {
    const Device device = {1, 1e12L};
    Timestamps clock;
    clock.init(1, 64);
    Program run;
    run.next(20000);
    clock.bound(device.ticks(run.begin), device.ticks(run.end), run.submit, run.seen);
    clock.calibrate(device.ticks(kStart), kStart);
    run.next(20000);
    clock.bound(device.ticks(run.begin), device.ticks(run.end), run.submit, run.seen);
    EXPECT_EQ(clock.cpu_ns(device.ticks(run.begin)), run.begin);
}

}  // namespace
