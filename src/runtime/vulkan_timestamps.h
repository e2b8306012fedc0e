// vulkan_timestamps.h: a GPU's ticks as times of the CPU's clock. [pure]
//
// A timestamp counts periods of the device's own clock, in 36 to 64 valid bits, from an unknown beginning. To stand
// beside what the CPU did, it needs one pair (ticks, CPU time) that belongs together: the anchor.
//
//   calibrated   the driver gives such a pair (VK_EXT_calibrated_timestamps). Asked for again every kCalibrateEvery_ns,
//                since two clocks drift apart: at 50 ppm by 5 us in 100 ms.
//   estimated    every submission bounds it: work begins after the submit, and ends before its end was seen. Each bound
//                of each submission narrows the interval that the anchor's time lies in, and time widens it by the
//                drift; the middle is taken. A launch that is waited for bounds it to some 20 us (H200: 8 before the
//                kernel, 17 to 50 after it).
//
// Memory: this object. Threads: unsafe, the owner locks.

#ifndef HALIDE_VULKAN_TIMESTAMPS_H
#define HALIDE_VULKAN_TIMESTAMPS_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

class Timestamps {
public:
    static constexpr uint64_t kCalibrateEvery_ns = 100000000;

    // `period`: nanoseconds for each tick (VkPhysicalDeviceLimits::timestampPeriod). `valid_bits`: of the queue family.
    void init(float period, uint32_t valid_bits) {
        // 16.16 fixed point: conversions between floating point and 64 bits are library calls on 32-bit targets. It is
        // exact for whole periods, and off by at most 8 ppm of a span for the others.
        scale = (uint32_t)(int32_t)(period * 65536.0f + 0.5f);
        mask = valid_bits >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << valid_bits) - 1;
        sign = (mask >> 1) + 1;
        anchored = calibrated_ = false;
    }
    bool calibrated() const { return calibrated_; }

    bool wants_calibration(uint64_t now_ns) const { return !calibrated_ || now_ns - anchor_ns >= kCalibrateEvery_ns; }
    // The driver's pair.
    void calibrate(uint64_t ticks, uint64_t cpu_ns) {
        anchor_ticks = ticks & mask;
        anchor_ns = cpu_ns;
        anchored = calibrated_ = true;
    }

    // A submission: its first and last timestamp, when it was handed over, and when its end was seen.
    void bound(uint64_t first, uint64_t last, uint64_t submit_ns, uint64_t seen_ns) {
        if (calibrated_) return;
        if (!anchored) {
            anchor_ticks = first & mask;
            earliest = submit_ns;
            latest = seen_ns - (uint64_t)(since_anchor(last) > 0 ? since_anchor(last) : 0);
            anchored = true;
        } else {
            // Both clocks together: at most 61 ppm.
            const uint64_t drift = seen_ns > bounded_ns ? (seen_ns - bounded_ns) / 16384 : 0;
            const uint64_t after = submit_ns - (uint64_t)since_anchor(first);
            const uint64_t before = seen_ns - (uint64_t)since_anchor(last);
            earliest = max_of(earliest - drift, after);
            latest = min_of(latest + drift, before);
            // They contradict each other: a clock was set. Start over from what was seen last.
            if (earliest > latest) {
                earliest = after;
                latest = max_of(before, after);
            }
        }
        bounded_ns = seen_ns;
        anchor_ns = earliest + (latest > earliest ? (latest - earliest) / 2 : 0);
    }

    // Only after the first calibrate or bound.
    uint64_t cpu_ns(uint64_t ticks) const { return anchor_ns + (uint64_t)since_anchor(ticks); }

private:
    uint32_t scale;       // ns for each tick, 16.16
    uint64_t mask, sign;  // of the valid bits; the highest of them
    bool anchored, calibrated_;
    uint64_t anchor_ticks, anchor_ns;
    uint64_t earliest, latest;  // bounds of the anchor's time, while it is estimated
    uint64_t bounded_ns;        // when they were last narrowed

    uint64_t span_ns(uint64_t ticks) const {
        return ((ticks >> 32) * scale << 16) + ((ticks & 0xffffffffu) * scale >> 16);
    }
    // Ticks wrap around at the valid bits; the nearer way is meant.
    int64_t since_anchor(uint64_t ticks) const {
        const uint64_t forward = (ticks - anchor_ticks) & mask;
        if (forward & sign) return -(int64_t)span_ns((0 - forward) & mask);
        return (int64_t)span_ns(forward);
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_TIMESTAMPS_H
