// vulkan_moves.h: a set of runs as commands of the open batch.
//
// Few runs are listed in copy commands; from kStridedRuns on a kernel moves them (vulkan_strided_kernel.h), so that a
// copy takes one or two commands whatever its strides.
//
// Thread rule: unsafe, the device's lock, in a session with an open batch.

#ifndef HALIDE_VULKAN_MOVES_H
#define HALIDE_VULKAN_MOVES_H

#include "vulkan_context.h"

namespace halide_vulkan {
namespace {

// Copy commands take lists of runs; this many at a time are gathered on the stack (1.5 KiB: JIT code may be called on
// small stacks).
constexpr uint32_t kRunsAtOnce = 64;
// A batch with more runs than this is submitted without waiting for the flush policy: the policy counts commands.
constexpr size_t kManyRuns = 4096;
// What one dispatch moves at most: the kernel counts with 31 bits.
constexpr size_t kGridBytes = (size_t)1 << 30;

// The bytes of a view as one access: its span.
inline Access access_of(const Region &region, const StridedView &view, bool write) {
    int64_t low = 0, high = 0;
    span(view, &low, &high);
    const uint64_t base = region.offset + (uint64_t)view.offset;
    return {region.memory, base + (uint64_t)low, base + (uint64_t)high, write};
}

// The two kinds of sides: a view of a region, and a piece of staging.
inline CopySide side_of(const Region &region, const StridedView &view) {
    const Access bytes = access_of(region, view, false);
    return {region.buffer, region.offset, bytes.begin, bytes.end};
}
inline CopySide side_of(const StagingPiece &piece, size_t bytes) {
    return {piece.buffer, piece.offset, piece.offset, piece.offset + bytes};
}

// Records bytes [begin, begin + bytes) of the stream as copy commands; returns how many runs they list.
inline size_t record_runs(Device &d, const Runs &runs, size_t begin, size_t bytes, const CopySide &from,
                          const CopySide &to) {
    VkBufferCopy list[kRunsAtOnce];
    RunCursor cursor(runs, begin, bytes);
    size_t total = 0;
    uint32_t n = 0;
    Run run;
    while (cursor.next(run)) {
        list[n++] = {from.base + (uint64_t)run.source, to.base + (uint64_t)run.destination, run.bytes};
        total++;
        if (n == kRunsAtOnce || cursor.remaining() == 0) {
            d.gpu.vk.vkCmdCopyBuffer(d.submissions.commands(), from.buffer, to.buffer, n, list);
            n = 0;
        }
    }
    return total;
}

// The same by whatever is faster: a kernel where the runs are many, else copy commands. False with *full when the batch
// must be submitted first (submit_full). *done: bytes of these that are recorded already, from the call before that was
// full. *listed: runs that commands list. `what`: the name of the whole for those who look.
inline bool record_moves(Device &d, const char *what, const Runs &runs, size_t begin, size_t bytes, CopySide from,
                         CopySide to, size_t *done, size_t *listed, bool *full) {
    *listed = 0;
    *full = false;
    const CommandMark mark(d.gpu, d.submissions, TraceKind::gpu_copy, what, bytes - *done);
    const bool by_kernel = d.gpu.options.copy_kernel && number_of_runs(runs, begin, bytes) >= kStridedRuns;
    const auto advance = [&](size_t part) {
        begin += part;
        bytes -= part;
        if (runs.dense == Runs::kSource) from.base += part;
        if (runs.dense == Runs::kDestination) to.base += part;
    };
    advance(*done);
    while (by_kernel && bytes > 0) {
        const size_t part = min_of(bytes, kGridBytes);
        if (!d.strided_kernel.record(d.gpu, d.shapes, d.submissions, runs, begin, part, from, to, full)) break;
        advance(part);
        *done += part;
    }
    if (*full) return false;
    if (bytes > 0) *listed = record_runs(d, runs, begin, bytes, from, to);
    return true;
}

// Submits a batch that had no room for the rest of a copy. What is in it of that copy was not counted yet, and a batch
// without commands would stay open.
inline bool submit_full(Session &session) {
    FlushPolicy::Batch &batch = session.device->submissions.batch;
    batch.commands = max_of(batch.commands, 1u);
    return session.submit();
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_MOVES_H
