// vulkan_flush.h: when to submit the open batch, and how long to spin in a wait. [pure]
//
// Two policies, each a rule over a few numbers. Neither reads a clock, an option or a Vulkan object: what they know is
// passed in, so a test can walk them through any history.
//
// FlushPolicy. A submit costs the GPU 8 to 13 us, a batched dispatch 2.3 (H200): batches pay. But a batch that is held
// back while the GPU has nothing to do costs more than it saves. So: two submissions in flight, record on, since the
// batch would only queue; fewer, submit, for one runs and the next must stand ready behind it. But a submit also costs
// the caller 3 to 4 us, where recording a command costs about 1: a caller whose kernels are shorter than that would pay
// for a submit per command and be slower for it. So while commands come faster than that, in a row of submissions
// without a wait between them, the batch must grow (1, 1, 2, 4, 8, 16 commands) before it is submitted early: the GPU
// is then at most 16 us behind. A command that comes after a longer gap is submitted with what is open: nobody knows
// when the next comes. The limits below end a batch that grows long even so; a batch that stays open because the caller
// went quiet is the flusher's (vulkan_flusher.h).
//
// WaitPolicy. A launch that is waited for takes 48 to 53 us if the wait blocks, and 14.6 if it polls (H200): a short
// wait is worth a spin, a long one is not, and nobody says beforehand which it is. The budget is learnt from the waits
// before.
//
// Memory: some words. Threads: unsafe, the owner locks (a lost update would cost time, never a wrong result).

#ifndef HALIDE_VULKAN_FLUSH_H
#define HALIDE_VULKAN_FLUSH_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

// HL_VK_FLUSH. "auto" is the rule above. "count" looks at the batch alone, never at what is in flight, so that the
// number of submissions is the same in each run: for tests that count. "always" submits each command: for finding out
// whether batching is to blame.
enum class FlushMode : uint32_t { automatic, count, always };

struct FlushOptions {
    FlushMode mode = FlushMode::automatic;
    // At 64 dispatches of 2.3 us a submit of 8 to 13 us is 6 to 9 % of its batch, and the descriptor sets and scalars
    // that 16 submissions keep for reuse stay small. (16, the least that is asked for, would leave it at 26 %.)
    uint32_t max_commands = 64;
    // A quarter of the 64 MiB of staging: one batch fills it while three others drain.
    uint64_t max_bytes = (uint64_t)16 << 20;
    // At 2 ms a submit is below 1 % of its batch, so a longer one gains nothing; and the estimate may be wrong by a
    // factor of 100 before the strictest watchdog (Windows: 2 s) is near.
    uint64_t max_ns = 2000000;
};

class FlushPolicy {
public:
    struct Batch {
        uint32_t commands = 0;
        uint64_t bytes = 0;         // that its copies move through staging
        uint64_t predicted_ns = 0;  // see predict()
    };

    constexpr FlushPolicy() = default;
    constexpr explicit FlushPolicy(const FlushOptions &options) : options(options) {}

    // Whether the batch must not grow, whatever is in flight.
    bool is_full(const Batch &batch) const {
        if (batch.commands >= options.max_commands || batch.bytes >= options.max_bytes) return true;
        if (options.mode != FlushMode::automatic) return options.mode == FlushMode::always;
        return batch.predicted_ns >= options.max_ns || (ns_per_command == 0 && batch.commands >= kMostUnlearnt);
    }

    // `row`: submissions since somebody last waited for the GPU. `gap_ns`: from the command before to this one.
    bool should_submit(const Batch &batch, uint32_t submissions_in_flight, uint32_t row, uint64_t gap_ns) const {
        if (batch.commands == 0) return false;
        if (options.mode == FlushMode::always) return true;
        if (is_full(batch)) return true;
        if (options.mode == FlushMode::count) return false;
        if (submissions_in_flight >= kKeepInFlight) return false;
        return gap_ns > kShortGap_ns || batch.commands >= early_commands(row);
    }

    // Commands that make a batch worth a submit of its own, see the head of this file.
    static uint32_t early_commands(uint32_t row) { return row < 2 ? 1 : row > 5 ? kMostEarly : 1u << (row - 1); }

    // Time that so many commands take on the GPU, as learnt; 0 when nothing is known yet.
    uint64_t predict(uint32_t commands) const { return (uint64_t)commands * ns_per_command; }

    // What a finished submission took. Half way up at once but only an eighth of the way down: too low an estimate
    // makes a batch too long, too high a one merely submits it early. In mixed work the slow commands so count most.
    void learn(uint32_t commands, uint64_t gpu_ns) {
        if (commands == 0) return;
        // 32 bits hold 4.2 s, more than any watchdog allows, and spare 32-bit targets a division routine.
        const uint32_t sample = (uint32_t)min_of(gpu_ns, (uint64_t)0xffffffffu) / commands;
        if (ns_per_command == 0)
            ns_per_command = sample;
        else if (sample > ns_per_command)
            ns_per_command += (sample - ns_per_command + 1) / 2;
        else
            ns_per_command -= (ns_per_command - sample) / 8;
    }

private:
    // One that runs and one that is ready when it ends.
    static constexpr uint32_t kKeepInFlight = 2;
    // A submit of 3 to 4 us over 16 commands is 0.2 us for each. Measured on an H200 with a submit per launch: 5.3 us
    // of the caller's time for each independent launch.
    static constexpr uint32_t kMostEarly = 16;
    // Commands in a batch before anything is known of the time they take: kernels of 100 ms then still end before the
    // strictest watchdog (2 s).
    static constexpr uint32_t kMostUnlearnt = 16;
    // About what a submit costs the caller: what comes later than that would not have been spared one.
    static constexpr uint64_t kShortGap_ns = 5000;

    FlushOptions options;
    uint32_t ns_per_command = 0;
};

// One wait: poll for at most budget_ns(), then block. Report finished() when a poll saw the end, blocked() when the
// budget ran out. A budget of 0 means: block at once.
class WaitPolicy {
public:
    // What a poll is taken to last where there is no clock: asking a fence costs 0.06 us on an H200, a timeline less.
    static constexpr uint32_t kPoll_ns = 60;

    // Spinning is wrong on a CPU device and with one usable core: the spinner would take the core that does the work.
    constexpr explicit WaitPolicy(bool can_spin = false)
        : most(can_spin ? kMost_ns : 0), budget(can_spin ? kMost_ns : 0) {}

    uint32_t budget_ns() const { return budget; }

    // A wait that spinning saw the end of: so may the next.
    void finished() {
        misses = 0;
        budget = most;
    }

    // Spun in vain. A few times can happen to short waits; more, and the waits are long ones, not worth a spin. Every
    // so often the whole budget is tried again, or it would never show that they are short once more.
    void blocked() {
        misses++;
        if (most == 0) return;
        budget = misses < kPatience || (misses & (kProbeEvery - 1)) == 0 ? most : (uint32_t)kLeast_ns;
    }

private:
    // What a blocking wait costs (48 to 53 us on an H200) and a little more. To spin as long as the alternative costs
    // at most doubles the wait, whatever comes. A wait for a small launch takes 9 to 15 us, behind those of three other
    // threads 40.
    static constexpr uint32_t kMost_ns = 60000;
    // Finds work that is all but done, and is lost in the noise of a wait that blocks.
    static constexpr uint32_t kLeast_ns = 4000;
    static constexpr uint32_t kPatience = 4;
    // With it, long waits spin for (60 + 7 * 4) / 8 = 11 us each.
    static constexpr uint32_t kProbeEvery = 8;

    uint32_t most;
    uint32_t budget;
    uint32_t misses = 0;
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_FLUSH_H
