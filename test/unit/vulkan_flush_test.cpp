// The two policies over histories that the test invents: no clock, no device.

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "vulkan_base.h"
#include "vulkan_flush.h"

using namespace halide_vulkan;

namespace {

FlushPolicy policy_of(FlushMode mode) {
    FlushOptions options;
    options.mode = mode;
    options.max_commands = 64;
    options.max_bytes = 1 << 20;
    options.max_ns = 1000000;
    return FlushPolicy(options);
}

// One that knows how long a command takes.
FlushPolicy learnt(FlushMode mode) {
    FlushPolicy policy = policy_of(mode);
    policy.learn(1, 2300);
    return policy;
}

// A GPU that takes gpu_ns per command and submit_ns per submission, fed by a caller that records one command each
// record_ns. Returns the number of submissions; *idle_ns is how long the GPU stood still with a command recorded.
int simulate(const FlushPolicy &policy, int commands, uint64_t record_ns, uint64_t gpu_ns, uint64_t submit_ns,
             uint64_t *idle_ns) {
    uint64_t now = 0, gpu_free_at = 0, open_since = 0;
    std::vector<uint64_t> ends;
    FlushPolicy::Batch batch;
    int submissions = 0;
    *idle_ns = 0;
    for (int i = 0; i < commands; i++) {
        now += record_ns;
        if (batch.commands == 0) open_since = now;
        batch.commands++;
        batch.predicted_ns = policy.predict(batch.commands);
        uint32_t in_flight = 0;
        for (uint64_t end : ends) in_flight += end > now;
        if (!policy.should_submit(batch, in_flight, (uint32_t)submissions, record_ns)) continue;
        submissions++;
        if (now > std::max(gpu_free_at, open_since)) *idle_ns += now - std::max(gpu_free_at, open_since);
        gpu_free_at = std::max(gpu_free_at, now) + submit_ns + batch.commands * gpu_ns;
        ends.push_back(gpu_free_at);
        batch = {};
    }
    return submissions;
}

}  // namespace

TEST(FlushPolicy, AnEmptyBatchIsNeverSubmitted) {
    for (FlushMode mode : {FlushMode::automatic, FlushMode::count, FlushMode::always}) {
        for (uint32_t in_flight : {0u, 1u, 2u, 16u})
            EXPECT_FALSE(policy_of(mode).should_submit({}, in_flight, 0, 1000));
    }
}

TEST(FlushPolicy, AutomaticKeepsTwoInFlight) {
    const FlushPolicy p = learnt(FlushMode::automatic);
    EXPECT_TRUE(p.should_submit({1, 0, 0}, 0, 0, 1000));
    EXPECT_TRUE(p.should_submit({1, 0, 0}, 1, 0, 1000));
    EXPECT_FALSE(p.should_submit({1, 0, 0}, 2, 0, 1000));
    EXPECT_FALSE(p.should_submit({63, (1 << 20) - 1, 999999}, 2, 0, 1000));
    EXPECT_TRUE(p.should_submit({64, 0, 0}, 2, 0, 1000));
    EXPECT_TRUE(p.should_submit({1, 1 << 20, 0}, 2, 0, 1000));
    EXPECT_TRUE(p.should_submit({1, 0, 1000000}, 2, 0, 1000));
}

TEST(FlushPolicy, UntilATimeIsLearntBatchesAreShort) {
    FlushPolicy p = policy_of(FlushMode::automatic);
    EXPECT_FALSE(p.should_submit({15, 0, 0}, 2, 9, 1000));
    EXPECT_TRUE(p.should_submit({16, 0, 0}, 2, 9, 1000));
    EXPECT_FALSE(policy_of(FlushMode::count).should_submit({16, 0, 0}, 2, 9, 1000));
    p.learn(1, 2300);
    EXPECT_FALSE(p.should_submit({63, 0, 0}, 2, 9, 1000));
}

TEST(FlushPolicy, InARowTheBatchMustGrowBeforeItIsSubmittedEarly) {
    const FlushPolicy p = policy_of(FlushMode::automatic);
    const uint32_t wanted[] = {1, 1, 2, 4, 8, 16, 16, 16};
    for (uint32_t row = 0; row < 8; row++) {
        EXPECT_EQ(FlushPolicy::early_commands(row), wanted[row]);
        EXPECT_TRUE(p.should_submit({wanted[row], 0, 0}, 0, row, 1000));
        EXPECT_TRUE(p.should_submit({wanted[row], 0, 0}, 1, row, 1000));
        if (wanted[row] > 1) {
            EXPECT_FALSE(p.should_submit({wanted[row] - 1, 0, 0}, 1, row, 1000));
            EXPECT_TRUE(p.should_submit({1, 0, 0}, 1, row, 6000)) << "after a gap nothing is held back";
            EXPECT_FALSE(p.should_submit({1, 0, 0}, 2, row, 6000)) << "but for a GPU that has enough to do";
        }
    }
    EXPECT_EQ(FlushPolicy::early_commands(0xffffffffu), 16u);
}

TEST(FlushPolicy, CountLooksAtTheBatchAlone) {
    const FlushPolicy p = policy_of(FlushMode::count);
    for (uint32_t in_flight : {0u, 1u, 2u, 16u}) {
        EXPECT_FALSE(p.should_submit({63, 0, UINT64_MAX}, in_flight, 0, 1000));
        EXPECT_TRUE(p.should_submit({64, 0, 0}, in_flight, 0, 1000));
        EXPECT_TRUE(p.should_submit({1, 1 << 20, 0}, in_flight, 0, 1000));
    }
}

TEST(FlushPolicy, AlwaysIsAlways) { EXPECT_TRUE(policy_of(FlushMode::always).should_submit({1, 0, 0}, 16, 0, 1000)); }

TEST(FlushPolicy, LearnsQuicklyUpAndSlowlyDown) {
    FlushPolicy p;
    EXPECT_EQ(p.predict(100), 0u);
    p.learn(0, 1000);
    EXPECT_EQ(p.predict(1), 0u);
    p.learn(10, 10000);
    EXPECT_EQ(p.predict(1), 1000u);
    EXPECT_EQ(p.predict(50), 50000u);
    p.learn(1, 3000);
    EXPECT_EQ(p.predict(1), 2000u);
    p.learn(1, 1200);
    EXPECT_EQ(p.predict(1), 1900u);
    for (int i = 0; i < 200; i++) p.learn(1, 5000);
    EXPECT_EQ(p.predict(1), 5000u);
    for (int i = 0; i < 200; i++) p.learn(1, 100);
    EXPECT_LT(p.predict(1), 120u);
    p.learn(1, UINT64_MAX);  // a stuck submission: large, and no overflow
    EXPECT_GT(p.predict(1), 2000000000u);
    EXPECT_GT(p.predict(0xffffffffu), p.predict(1));
}

TEST(FlushPolicy, DefaultsBatchSixteenAndStayFarBelowAWatchdog) {
    const FlushOptions defaults;
    EXPECT_GE(defaults.max_commands, 16u);
    EXPECT_LE(defaults.max_ns * 100, 2000000000u);
    EXPECT_LE(defaults.max_bytes * 4, 64u << 20);
    EXPECT_EQ(defaults.mode, FlushMode::automatic);
}

TEST(FlushPolicy, BatchSizeFollowsTheLoad) {
    const FlushPolicy p = learnt(FlushMode::automatic);
    uint64_t idle = 0;
    // The caller is slower than the GPU: each command goes at once, and the GPU never waits for a batch to fill.
    EXPECT_EQ(simulate(p, 1000, 50000, 2300, 8300, &idle), 1000);
    EXPECT_EQ(idle, 0u);
    // The caller is faster: few submissions, and still no waiting.
    const int few = simulate(p, 1000, 500, 2300, 8300, &idle);
    EXPECT_LT(few, 1000 / 16);
    EXPECT_EQ(idle, 0u);
    // With "count", the same load lets the GPU stand still while the first batch fills.
    EXPECT_EQ(simulate(policy_of(FlushMode::count), 1024, 500, 2300, 8300, &idle), 16);
    EXPECT_GT(idle, 0u);
}

TEST(WaitPolicy, WithoutSpinningTheBudgetStaysZero) {
    for (WaitPolicy p : {WaitPolicy(), WaitPolicy(false)}) {
        EXPECT_EQ(p.budget_ns(), 0u);
        p.finished();
        for (int i = 0; i < 100; i++) p.blocked();
        EXPECT_EQ(p.budget_ns(), 0u);
    }
}

TEST(WaitPolicy, TheBudgetIsBoundedWhateverHappens) {
    WaitPolicy p(true);
    uint32_t state = 1;
    for (int i = 0; i < 100000; i++) {
        ASSERT_GE(p.budget_ns(), 4000u);
        ASSERT_LE(p.budget_ns(), 60000u);
        state = state * 1664525u + 1013904223u;
        if (state >> 31)
            p.blocked();
        else
            p.finished();
    }
}

// Waits of 40 us, as behind three other threads, with one in four that outlasts the budget: all others are spun
// through.
TEST(WaitPolicy, ShortWaitsAreSpunThrough) {
    WaitPolicy p(true);
    for (int i = 0; i < 1000; i++) {
        ASSERT_GE(p.budget_ns(), 40000u);
        if (i % 4 == 3)
            p.blocked();
        else
            p.finished();
    }
}

TEST(WaitPolicy, LongWaitsCostLittleSpinningAndShortOnesAreFoundAgain) {
    WaitPolicy p(true);
    uint64_t spun = 0;
    for (int i = 0; i < 800; i++) {
        spun += p.budget_ns();
        p.blocked();
    }
    EXPECT_LE(spun / 800, 12000u);
    // Then all waits take 17 us: within 8 of them the policy spins long enough again, and stays there.
    int missed = 0;
    for (int i = 0; i < 100; i++) {
        if (p.budget_ns() >= 17000) {
            p.finished();
        } else {
            missed++;
            p.blocked();
        }
    }
    EXPECT_LE(missed, 8);
}
