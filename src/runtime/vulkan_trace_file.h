// vulkan_trace_file.h: a JSON array on disk that grows and is valid at every moment. [pure]
//
// A trace is wanted most when a program dies, so the file must be good JSON whenever the process is gone, kill -9
// included, and not only for the two viewers that forgive a missing end. A file that ends behind its last record would
// have to move its closing bracket with each write, and a write that crosses a page can be cut between two pages by
// SIGKILL. So the bracket stands far ahead, behind blanks, and records are written into the blanks:
//
//     [ {record},{record},{record}                         ]
//
//   - One write never crosses a multiple of 4 KiB, which a kernel copies in one go: it is there or it is not. Records
//     therefore never cross one either; what is left of 4 KiB stays blank.
//   - Nothing is written twice, so a reader that looks while the program runs sees good JSON too.
//   - When the blanks are used up, more are written behind the bracket (blanks are allowed there), then the bracket is
//     blotted out and set again at the new end, one byte each. Between these two calls, about a microsecond, the end is
//     missing; that happens once for each doubling of the file (later once in 16 MiB), and viewers forgive just that.
//   - When tracing stops, the blanks are cut off.
//
// Functions are passed in: the C library's are looked up by name at run time, and tests pass their own.
//
// Memory: this object. Threads: unsafe, the owner locks. Errors: false, and from then on nothing is written any more.

#ifndef HALIDE_VULKAN_TRACE_FILE_H
#define HALIDE_VULKAN_TRACE_FILE_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

// POSIX, all of them, and none with a variable number of arguments (open has, and its flags differ by system).
struct TraceCalls {
    int (*creat)(const char *path, unsigned mode);
    intptr_t (*pwrite)(int file, const void *bytes, size_t count, long offset);
    int (*ftruncate)(int file, long size);
    int (*close)(int file);

    bool complete() const { return creat && pwrite && ftruncate && close; }
};

class TraceFile {
public:
    // A page of the smallest kind; larger pages are multiples of it.
    static constexpr uint32_t kPage = 4096;
    // The longest record: with the comma and the line end before it, it fits a page with the closing bracket.
    static constexpr uint32_t kLongestRecord = kPage - 4;

    bool is_open() const { return open_; }
    bool failed() const { return failed_; }
    uint64_t bytes() const { return used; }

    // Creates or empties the file. `limit`: the size it may grow to.
    bool open(const TraceCalls &functions, const char *path, uint64_t size_limit) {
        calls = functions;
        limit = size_limit;
        file = calls.creat(path, 0666);
        open_ = file >= 0;
        failed_ = !open_;
        used = 1;
        end = 1;
        any = false;
        pending = 0;
        return open_ && write("[]", 2, 0);
    }

    // Takes one JSON value, at most kLongestRecord bytes; written by the next flush or earlier. False: it is not in the
    // file, because the limit is reached or a write failed.
    bool append(const char *text, uint32_t length) {
        const uint32_t whole = length + 2;
        if (!open_ || failed_ || length > kLongestRecord) return false;
        if (pending && used / kPage != (used + pending + whole - 1) / kPage && !flush()) return false;
        uint64_t at = used + pending;
        if (at / kPage != (at + whole - 1) / kPage) at = align_up(at, kPage);
        if (at + whole > end && !grow(at + whole)) return false;
        if (pending == 0) used = at;
        page[pending++] = any ? ',' : ' ';
        page[pending++] = '\n';
        __builtin_memcpy(page + pending, text, length);
        pending += length;
        any = true;
        return true;
    }

    // Hands what was appended to the system; from then on it outlives the process.
    bool flush() {
        if (!open_ || failed_) return false;
        const uint32_t count = pending;
        pending = 0;
        if (count && !write(page, count, used)) return false;
        used += count;
        return true;
    }

    // Flushes and cuts the blanks off. More may be appended later.
    bool trim() {
        if (!flush()) return false;
        // First the old end goes, then the new one comes: what is missing in between, viewers forgive.
        if (calls.ftruncate(file, (long)used) != 0) return fail();
        end = used;
        return write("]", 1, end);
    }

    void close() {
        if (!open_) return;
        if (!failed_) trim();
        calls.close(file);
        open_ = false;
    }

private:
    static constexpr uint64_t kLeastStep = 64 << 10;
    static constexpr uint64_t kLargestStep = 16 << 20;
    static constexpr uint32_t kBlanks = 16 << 10;  // written at a time

    TraceCalls calls;
    int file;
    bool open_, failed_;
    bool any;       // a record was written: the next one has a comma before it
    uint64_t used;  // the next write goes here
    uint64_t end;   // where the closing bracket is
    uint64_t limit;
    uint32_t pending;  // bytes of `page`
    char page[kPage];
    char blanks[kBlanks];

    bool fail() {
        failed_ = true;
        return false;
    }
    bool write(const char *bytes, size_t count, uint64_t at) {
        return calls.pwrite(file, bytes, count, (long)at) == (intptr_t)count || fail();
    }

    // Moves the closing bracket to the end of a page behind `least`. At the limit: false, and appending goes on
    // failing.
    bool grow(uint64_t least) {
        const uint64_t step = min_of(max_of(used, kLeastStep), kLargestStep);
        const uint64_t new_end = min_of(align_up(max_of(end + step, least + 1), kPage), align_down(limit, kPage)) - 1;
        if (new_end < least) return false;
        __builtin_memset(blanks, ' ', kBlanks);
        for (uint64_t at = end + 1; at < new_end;) {
            const size_t count = (size_t)min_of<uint64_t>(kBlanks, new_end - at);
            if (!write(blanks, count, at)) return false;
            at += count;
        }
        if (!write(" ", 1, end) || !write("]", 1, new_end)) return false;
        end = new_end;
        return true;
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_TRACE_FILE_H
