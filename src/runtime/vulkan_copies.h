// vulkan_copies.h: copies between host memory and device regions, and between regions.
//
// A copy is planned as runs of bytes (vulkan_strides.h) and carried out in pieces of at most 4 MiB of staging, so that
// the CPU packs one piece while the GPU moves another, in either direction, and what is in flight stays bounded.
//   upload    the bytes are read before the call returns, then it returns; nothing is waited for unless 60 MiB of
//   staging
//             are on their way. An upload to memory that the CPU can see, and the GPU does not use, is written there:
//             a small one, or any on unified memory. A region that is busy and wholly overwritten gets fresh bytes
//             first (Memory::replace), so that this holds for it too.
//   download  submits what is open, waits for its own pieces, returns with the bytes in place. Where the CPU can read
//   the
//             region itself at full speed (unified memory), it waits for the newest write and reads, with no GPU copy.
//   device    recorded; returns at once. Views that overlap in one memory go through a region of their own.
// Gaps between rows are never written.
//
// No lock is held while memory is copied or the GPU waited for. Thread rule: entered by any number of threads.

#ifndef HALIDE_VULKAN_COPIES_H
#define HALIDE_VULKAN_COPIES_H

#include "vulkan_context.h"
#include "vulkan_moves.h"

namespace halide_vulkan {
namespace {

// One side of a copy on the device.
struct DeviceView {
    uint32_t region;
    StridedView view;  // its offset counts from the region's first byte
};

// Up to this size, a CPU write to visible device memory beats staging: 3.7 us against 9.4 for 64 KiB on an H200, where
// one thread writes such memory at 15 GB/s and staging costs a submit of about 8 us. Any size where the memory is the
// host's own (cached: unified memory, CPU devices), since a copy by the GPU would only be a second one.
constexpr size_t kDirectUploadBytes = 128 << 10;
// Pieces of one download under way: enough to keep the copy engine busy while one is unpacked.
constexpr uint32_t kPiecesUnderWay = 6;
class Copier {
public:
    // `device` is in use by the caller (pinned) for as long as the copier lives.
    Copier(void *user_context, Device &device, Failure &failure)
        : user_context(user_context), d(device), failure(failure) {}

    [[gnu::noinline]] bool upload(const uint8_t *host, const StridedView &from, const DeviceView &to);
    [[gnu::noinline]] bool download(const DeviceView &from, uint8_t *host, const StridedView &to);
    [[gnu::noinline]] bool device_copy(const DeviceView &from, const DeviceView &to);

private:
    // The workers may sleep when the copy ends, however it ends.
    struct Helpers {
        explicit Helpers(Workers &workers) : workers(workers) {}
        ~Helpers() { workers.rest(); }
        Workers &workers;
    };

    struct Pending {
        StagingPiece piece;
        size_t begin, bytes;
        uint64_t epoch;
    };

    void *user_context;
    Device &d;
    Failure &failure;

    bool check_bounds(const DeviceView &v, const char *what);
    bool check_not_lost_contents(const Region &region);
    static bool overwrites(const CopyPlan &plan, const Region &region);
    bool upload_staged(const CopyPlan &plan, const uint8_t *host, const DeviceView &to);
    bool upload_directly(const CopyPlan &plan, const uint8_t *host, uint32_t region);
    bool download_directly(const CopyPlan &plan, uint32_t region, uint8_t *host, bool *done);
    Reserved reserve(size_t bytes, StagingPiece &piece, bool may_wait);
    void cancel(const StagingPiece &piece);
    void give_back(const Pending &p, bool gpu_is_done);
    void note_written(const CopyPlan &plan, Region &region);
    bool record_upload(const Runs &runs, size_t begin, size_t bytes, const StagingPiece &piece, const DeviceView &to);
    bool start_download(const Runs &runs, const DeviceView &from, Pending &p);
    bool finish_download(const Runs &runs, const Pending &p, uint8_t *host);
    bool record_copy(const CopyPlan &plan, Region &source, const StridedView &from, Region &destination,
                     const StridedView &to, size_t *done, size_t *listed, bool *full);
    bool copy_through_region(const CopyPlan &plan, const DeviceView &from, const DeviceView &to);
    static size_t progress(size_t bytes, size_t begin) { return min_of<size_t>(kPieceBytes, bytes - begin); }
};

// With the device locked.
inline bool Copier::check_bounds(const DeviceView &v, const char *what) {
    int64_t low, high;
    const Region &region = d.memory.region(v.region);
    if (span(v.view, &low, &high) && v.view.offset + low >= 0 && (uint64_t)(v.view.offset + high) <= region.size)
        return true;
    failure.because(kBufferCopyFailed) << "Vulkan: " << what << " bytes " << (v.view.offset + low) << " to "
                                       << (v.view.offset + high) << " of a device allocation of " << region.size
                                       << " bytes were asked for";
    return false;
}

inline bool Copier::check_not_lost_contents(const Region &region) {
    if (!d.memory.is_lost(region, d.submissions)) return true;
    failure.because(kGpuDeviceError) << "Vulkan: the contents of the buffer were lost: " << d.submissions.lost_cause();
    return false;
}

// A piece of staging, reserved under the device's lock alone. When all is in flight: waits for the oldest, or returns
// `full` at once when the caller must not wait (it holds pieces itself).
inline Reserved Copier::reserve(size_t bytes, StagingPiece &piece, bool may_wait) {
    for (bool waited = false;;) {
        uint64_t wait_for = 0;
        Failure refused;
        d.lock.lock();
        Submissions &s = d.submissions;
        Reserved result = d.staging.reserve(d.gpu, bytes, s.completed, piece, &wait_for, refused);
        if (result == Reserved::full && s.in_flight() > 0) {
            s.poll(d.gpu);
            result = d.staging.reserve(d.gpu, bytes, s.completed, piece, &wait_for, refused);
        }
        // Refused, with no staging there yet: blocks that lie idle go, then those that the GPU still uses.
        bool gave_way = false;
        if (result == Reserved::failed && !d.gpu.lost) {
            gave_way = d.memory.trim(d.gpu, s.completed) > 0;
            if (!gave_way && !waited && s.newest_recorded() > s.completed) {
                waited = gave_way = true;
                wait_for = s.newest_recorded();
            }
        }
        const bool unsubmitted = wait_for > s.submitted;
        d.lock.unlock();
        if (result == Reserved::failed && !gave_way) failure.take(refused);
        if (!gave_way && (result != Reserved::full || !may_wait)) return result;
        if (gave_way && wait_for == 0) continue;
        if (unsubmitted) {
            Session session(user_context, failure);
            if (!session.begin(Need::existing, &d) || !session.submit()) return Reserved::failed;
        }
        if (wait_for == 0)
            halide_thread_yield();
        else if (!wait_until(d, wait_for, failure))
            return Reserved::failed;
    }
}

inline void Copier::cancel(const StagingPiece &piece) {
    d.lock.lock();
    d.staging.cancel(piece);
    d.lock.unlock();
}

// A piece whose end could not be waited for stays taken until its epoch is known to be done.
inline void Copier::give_back(const Pending &p, bool gpu_is_done) {
    d.lock.lock();
    if (gpu_is_done)
        d.staging.cancel(p.piece);
    else
        d.staging.publish(p.piece, p.epoch);
    d.lock.unlock();
}

// A copy of everything, made by one submission or by the CPU, makes good what an earlier loss left undone.
inline void Copier::note_written(const CopyPlan &plan, Region &region) {
    if (plan.bytes() >= region.wanted) d.memory.repaired(region);
}

// Whether the copy leaves no byte of the region's data as it is: dense on the device, from the first byte to the last.
inline bool Copier::overwrites(const CopyPlan &plan, const Region &region) {
    if (plan.direct.destination != 0 || plan.bytes() < region.wanted) return false;
    return dense_to_destination(plan).dims == 0;
}

// True when the bytes were written; false without a failure when staging must do it.
inline bool Copier::upload_directly(const CopyPlan &plan, const uint8_t *host, uint32_t region_id) {
    if (!d.gpu.options.direct) return false;
    d.lock.lock();
    Region &region = d.memory.region(region_id);
    const uint64_t most = d.memory.mapped_for_reading(region) ? UINT64_MAX : kDirectUploadBytes;
    uint8_t *mapped = plan.bytes() <= most ? d.memory.mapped(region) : nullptr;
    if (mapped) {
        const Submissions &s = d.submissions;
        region.cpu_writes = true;
        if (d.memory.last_use(region) > s.completed) d.submissions.poll(d.gpu);
        if (!d.memory.is_free_for_cpu(region, s)) {
            const bool fresh = overwrites(plan, region) && d.memory.replace(region, s.completed, s.host_done());
            mapped = fresh ? d.memory.mapped(region) : nullptr;
        }
    }
    if (d.gpu.lost) mapped = nullptr;
    if (mapped) region.cpu_writers++;
    d.lock.unlock();
    if (!mapped) return false;
    // The next submission makes the write visible to the GPU.
    d.workers.copy(plan.direct, 0, plan.bytes(), host, mapped, false);
    d.lock.lock();
    Region &written = d.memory.region(region_id);  // the table may have grown
    written.cpu_writers--;
    if (d.submissions.was_lost(written.last_write)) {
        written.lost = true;
        written.last_write = 0;
    }
    note_written(plan, written);
    d.lock.unlock();
    return true;
}

inline bool Copier::record_upload(const Runs &runs, size_t begin, size_t bytes, const StagingPiece &piece,
                                  const DeviceView &to) {
    for (size_t done = 0;;) {
        Session session(user_context, failure);
        if (!session.begin(Need::batch, &d)) break;
        Submissions &s = d.submissions;
        Region &region = d.memory.region(to.region);
        Access access = access_of(region, to.view, true);
        if (number_of_runs(runs, begin, bytes) == 1) {
            // Dense on the device: pieces of one upload do not wait for each other.
            Run run = {};
            RunCursor(runs, begin, bytes).next(run);
            access.begin = region.offset + (uint64_t)run.destination;
            access.end = access.begin + run.bytes;
        }
        s.order(d.gpu, &access, 1);
        d.memory.touch(region, s, true);
        size_t listed = 0;
        bool full = false;
        if (!record_moves(d, "upload", runs, begin, bytes, side_of(piece, bytes), side_of(region, to.view), &done,
                          &listed, &full)) {
            if (submit_full(session)) continue;
            break;
        }
        d.staging.publish(piece, s.open_epoch());
        const bool good = session.recorded(bytes);
        return good && (listed < kManyRuns || session.submit());
    }
    cancel(piece);
    return false;
}

inline bool Copier::upload(const uint8_t *host, const StridedView &from, const DeviceView &to) {
    CopyPlan plan;
    if (!plan_copy(from, to.view, Side::destination, plan, failure)) return false;
    if (plan.bytes() == 0) return true;
    TraceSpan span(TraceKind::copy, "upload");
    span.set(0, plan.bytes());
    d.lock.lock();
    const bool inside = check_bounds(to, "an upload to");
    Region &region = d.memory.region(to.region);
    const bool was_lost = inside && plan.bytes() >= region.wanted && d.memory.forget_loss(region, d.submissions);
    d.lock.unlock();
    if (!inside) return false;
    if (upload_directly(plan, host, to.region) || upload_staged(plan, host, to)) return true;
    d.lock.lock();
    if (was_lost) d.memory.region(to.region).lost = true;
    d.lock.unlock();
    return false;
}

inline bool Copier::upload_staged(const CopyPlan &plan, const uint8_t *host, const DeviceView &to) {
    d.lock.lock();
    Region &region = d.memory.region(to.region);
    // The copy needs no barrier after what the GPU does with the old contents then.
    const uint64_t completed = d.submissions.completed;
    if (d.memory.last_use(region) > completed && overwrites(plan, region))
        d.memory.replace(region, completed, completed);
    d.lock.unlock();
    const Runs pack = source_to_dense(plan), unpack = dense_to_destination(plan);
    const Helpers helpers(d.workers);
    for (size_t begin = 0; begin < plan.bytes();) {
        const size_t bytes = progress(plan.bytes(), begin);
        StagingPiece piece;
        if (reserve(bytes, piece, true) != Reserved::yes) return false;
        d.workers.copy(pack, begin, bytes, host, piece.bytes, true);
        if (!flush_written(d.gpu, d.staging.buffer_of(piece), piece.offset, bytes, failure)) {
            cancel(piece);
            return false;
        }
        if (!record_upload(unpack, begin, bytes, piece, to)) return false;
        begin += bytes;
    }
    return true;
}

// Where the CPU reads the region's memory at full speed: waits for its newest write, then reads.
inline bool Copier::download_directly(const CopyPlan &plan, uint32_t region_id, uint8_t *host, bool *done) {
    *done = false;
    if (!d.gpu.options.direct) return true;
    uint64_t wait_for = 0;
    const uint8_t *mapped = nullptr;
    {
        Session session(user_context, failure);
        if (!session.begin(Need::existing, &d)) return false;
        Region &region = d.memory.region(region_id);
        mapped = d.memory.mapped_for_reading(region);
        if (!mapped) return true;
        if (!check_not_lost(d.gpu, failure) || !check_not_lost_contents(region)) return false;
        wait_for = region.last_write;
        if (wait_for > d.submissions.submitted && !session.submit()) return false;
        region.cpu_readers++;
    }
    const bool good = wait_until(d, wait_for, failure);
    if (good) d.workers.copy(plan.direct, 0, plan.bytes(), mapped, host, false);
    d.lock.lock();
    d.memory.region(region_id).cpu_readers--;
    d.lock.unlock();
    *done = good;
    return good;
}

// Records and submits the copy of one piece into staging that is already reserved.
inline bool Copier::start_download(const Runs &runs, const DeviceView &from, Pending &p) {
    for (size_t done = 0;;) {
        Session session(user_context, failure);
        if (!session.begin(Need::batch, &d)) return false;
        Submissions &s = d.submissions;
        Region &region = d.memory.region(from.region);
        if (!check_not_lost_contents(region)) return false;
        const Access access = access_of(region, from.view, false);
        s.order(d.gpu, &access, 1);
        d.memory.touch(region, s, false);
        p.epoch = s.open_epoch();
        size_t listed = 0;
        bool full = false;
        if (record_moves(d, "download", runs, p.begin, p.bytes, side_of(region, from.view), side_of(p.piece, p.bytes),
                         &done, &listed, &full)) {
            s.end_with_host_barrier();
            s.batch.commands++;
            return session.submit();
        }
        if (!submit_full(session)) return false;
    }
}

inline bool Copier::finish_download(const Runs &runs, const Pending &p, uint8_t *host) {
    if (!wait_until(d, p.epoch, failure)) return false;
    if (!invalidate_before_read(d.gpu, d.staging.buffer_of(p.piece), p.piece.offset, p.bytes, failure)) return false;
    d.workers.copy(runs, p.begin, p.bytes, p.piece.bytes, host, true);
    return true;
}

inline bool Copier::download(const DeviceView &from, uint8_t *host, const StridedView &to) {
    CopyPlan plan;
    if (!plan_copy(from.view, to, Side::source, plan, failure)) return false;
    if (plan.bytes() == 0) return true;
    TraceSpan span(TraceKind::copy, "download");
    span.set(0, plan.bytes());
    d.lock.lock();
    const bool inside = check_bounds(from, "a download of");
    const bool readable = inside && d.memory.mapped_for_reading(d.memory.region(from.region)) != nullptr;
    d.lock.unlock();
    if (!inside) return false;
    bool done = false;
    if (readable && !download_directly(plan, from.region, host, &done)) return false;
    if (done) return true;

    const Runs pack = source_to_dense(plan), unpack = dense_to_destination(plan);
    const Helpers helpers(d.workers);
    Pending under_way[kPiecesUnderWay];
    uint32_t first = 0, count = 0;
    size_t begin = 0;
    while (!failure.failed() && (begin < plan.bytes() || count > 0)) {
        if (begin < plan.bytes() && count < kPiecesUnderWay) {
            Pending &p = under_way[(first + count) % kPiecesUnderWay];
            p.begin = begin;
            p.epoch = 0;
            p.bytes = progress(plan.bytes(), begin);
            const Reserved reserved = reserve(p.bytes, p.piece, count == 0);
            if (reserved == Reserved::yes) {
                count++;
                begin += p.bytes;
                start_download(pack, from, p);
                continue;
            }
            if (reserved == Reserved::failed) break;
        }
        const bool finished = finish_download(unpack, under_way[first], host);
        give_back(under_way[first], finished);
        first = (first + 1) % kPiecesUnderWay;
        count--;
    }
    // After a failure: pieces that the GPU may still write come back when it is done.
    for (; count > 0; count--, first = (first + 1) % kPiecesUnderWay) {
        Failure ignored;
        const bool done_with = wait_until(d, under_way[first].epoch, ignored);
        give_back(under_way[first], done_with);
    }
    return !failure.failed();
}

// Source and destination share memory: all of the source is read before any of the destination is written. A batch that
// is full in between is submitted, and the step it was full at goes on in the next.
inline bool Copier::copy_through_region(const CopyPlan &plan, const DeviceView &from, const DeviceView &to) {
    const Runs in = source_to_dense(plan), out = dense_to_destination(plan);
    uint32_t between_id = kNoIndex;
    bool gathered = false, scattered = false;
    size_t done_in = 0, done_out = 0;
    Shortage shortage;
    while (!scattered) {
        Session session(user_context, failure);
        if (!session.begin(Need::batch, &d)) break;
        Submissions &s = d.submissions;
        if (between_id == kNoIndex) {
            uint64_t wait_for = 0;
            Failure refused;
            between_id = d.memory.allocate(d.gpu, plan.bytes(), s.completed, &wait_for, refused);
            if (between_id == kNoIndex) {
                if (shortage.make_room(session, wait_for, refused)) continue;
                break;
            }
        }
        Region &source = d.memory.region(from.region), &destination = d.memory.region(to.region);
        Region &between = d.memory.region(between_id);
        const CopySide middle = {between.buffer, between.offset, between.offset, between.offset + plan.bytes()};
        size_t listed = 0, more = 0;
        bool full = false;
        d.memory.touch(between, s, true);
        if (!gathered) {
            const Access accesses[2] = {access_of(source, from.view, false),
                                        {between.memory, middle.begin, middle.end, true}};
            s.order(d.gpu, accesses, 2);
            d.memory.touch(source, s, false);
            gathered = record_moves(d, "device copy, in", in, 0, plan.bytes(), side_of(source, from.view), middle,
                                    &done_in, &listed, &full);
        }
        if (gathered) {
            const Access accesses[2] = {{between.memory, middle.begin, middle.end, false},
                                        access_of(destination, to.view, true)};
            s.order(d.gpu, accesses, 2);
            d.memory.touch(destination, s, true);
            scattered = record_moves(d, "device copy, out", out, 0, plan.bytes(), middle, side_of(destination, to.view),
                                     &done_out, &more, &full);
            if (scattered) note_written(plan, destination);
        }
        if (full ? !submit_full(session) : !session.recorded(0)) break;
        if (listed + more >= kManyRuns && !session.submit()) break;
    }
    if (between_id != kNoIndex) {
        d.lock.lock();
        d.memory.drop_reference(d.deferred, between_id);
        d.lock.unlock();
    }
    return !failure.failed();
}

inline bool Copier::device_copy(const DeviceView &from, const DeviceView &to) {
    CopyPlan plan;
    if (!plan_copy(from.view, to.view, Side::destination, plan, failure)) return false;
    if (plan.bytes() == 0) return true;
    TraceSpan span(TraceKind::copy, "device copy");
    span.set(0, plan.bytes());
    d.lock.lock();
    bool good = check_bounds(from, "a copy of") && check_bounds(to, "a copy to") &&
                check_not_lost_contents(d.memory.region(from.region));
    bool overlap = false;
    if (good) {
        const Access a = access_of(d.memory.region(from.region), from.view, false),
                     b = access_of(d.memory.region(to.region), to.view, true);
        overlap = a.memory == b.memory && a.begin < b.end && b.begin < a.end;
    }
    d.lock.unlock();
    if (!good) return false;
    if (overlap) return copy_through_region(plan, from, to);
    for (size_t done = 0;;) {
        Session session(user_context, failure);
        if (!session.begin(Need::batch, &d)) return false;
        Region &source = d.memory.region(from.region), &destination = d.memory.region(to.region);
        size_t listed = 0;
        bool full = false;
        d.memory.touch(source, d.submissions, false);
        d.memory.touch(destination, d.submissions, true);
        if (!record_copy(plan, source, from.view, destination, to.view, &done, &listed, &full)) {
            if (submit_full(session)) continue;
            return false;
        }
        note_written(plan, destination);
        return session.recorded(0) && (listed < kManyRuns || session.submit());
    }
}

// A long dense copy by the kernel for those. *done, and false with *full: as in record_moves.
inline bool Copier::record_copy(const CopyPlan &plan, Region &source, const StridedView &from, Region &destination,
                                const StridedView &to, size_t *done, size_t *listed, bool *full) {
    Submissions &s = d.submissions;
    const Access accesses[2] = {access_of(source, from, false), access_of(destination, to, true)};
    s.order(d.gpu, accesses, 2);
    const uint64_t from_offset = source.offset + (uint64_t)plan.direct.source;
    const uint64_t to_offset = destination.offset + (uint64_t)plan.direct.destination;
    if (*done == 0 && d.gpu.options.copy_kernel && number_of_runs(plan.direct) == 1 &&
        CopyKernel::suits(d.gpu, d.gpu.storage_range, from_offset, to_offset, plan.bytes())) {
        const size_t whole = plan.bytes() & ~(size_t)(kCopyUnit - 1);
        const CommandMark mark(d.gpu, s, TraceKind::gpu_copy, "device copy, by kernel", whole);
        if (d.copy_kernel.record(d.gpu, d.shapes, s, source.buffer, from_offset, destination.buffer, to_offset, whole,
                                 full)) {
            *done = whole;
        } else if (*full) {
            return false;
        }
    }
    return *done == plan.bytes() || record_moves(d, "device copy", plan.direct, 0, plan.bytes(), side_of(source, from),
                                                 side_of(destination, to), done, listed, full);
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_COPIES_H
