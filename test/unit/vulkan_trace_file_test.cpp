// The trace's file, against a file in memory that is looked at after every single write.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "vulkan_trace_file.h"

using namespace halide_vulkan;

namespace {

// The disk. Writes cross no page as far as records are concerned, so after each of them the text must be a JSON array.
struct Disk {
    std::string text;
    bool open = false;
    int writes = 0, broken = 0, refuse_from = -1;
    std::vector<std::string> snapshots;

    // An array of objects without nesting: enough JSON for what is written here.
    static bool is_array(const std::string &text, int *count) {
        size_t i = 0;
        const auto blanks = [&] { i = std::min(text.find_first_not_of(" \n", i), text.size()); };
        *count = 0;
        if (i == text.size() || text[i++] != '[') return false;
        for (;;) {
            blanks();
            if (i < text.size() && text[i] == ']' && *count == 0) break;
            if (i == text.size() || text[i] != '{') return false;
            const size_t close = text.find('}', i);
            if (close == std::string::npos || text.find('{', i + 1) < close) return false;
            i = close + 1;
            (*count)++;
            blanks();
            if (i < text.size() && text[i] == ']') break;
            if (i == text.size() || text[i++] != ',') return false;
        }
        i++;
        blanks();
        return i == text.size();
    }
} disk;

int do_creat(const char *path, unsigned mode) {
    if (std::string(path) == "refused" || mode != 0666) return -1;
    disk = {};
    disk.open = true;
    return 7;
}
intptr_t do_pwrite(int file, const void *bytes, size_t count, long offset) {
    EXPECT_EQ(file, 7);
    disk.writes++;
    if (disk.refuse_from >= 0 && disk.writes >= disk.refuse_from) return count / 2;
    if (memchr(bytes, '{', count)) {
        EXPECT_EQ(offset / 4096, (offset + (long)count - 1) / 4096) << "a record was cut";
    }
    // A system copies page by page, and a process may be killed between two pages: then only a part is there.
    for (size_t done = 0; done < count;) {
        const size_t in_page = std::min(count - done, 4096 - ((size_t)offset + done) % 4096);
        if (disk.text.size() < offset + done + in_page) disk.text.resize(offset + done + in_page);
        disk.text.replace(offset + done, in_page, (const char *)bytes + done, in_page);
        done += in_page;
        int records;
        if (!Disk::is_array(disk.text, &records)) {
            // What may happen for a moment: the end is missing, which viewers forgive.
            disk.broken++;
            EXPECT_TRUE(Disk::is_array(disk.text + "]", &records)) << "write " << disk.writes;
        }
    }
    return (intptr_t)count;
}
int do_ftruncate(int, long size) {
    disk.text.resize(size);
    return 0;
}
int do_close(int) {
    disk.open = false;
    return 0;
}
const TraceCalls kCalls = {do_creat, do_pwrite, do_ftruncate, do_close};

int records() {
    int count = -1;
    return Disk::is_array(disk.text, &count) ? count : -1;
}

bool append(TraceFile &file, const std::string &text) { return file.append(text.data(), (uint32_t)text.size()); }

constexpr uint64_t kNoLimit = 1ull << 40;

TEST(TraceFile, EmptyIsAnEmptyArray) {
    auto file = std::make_unique<TraceFile>();
    ASSERT_TRUE(file->open(kCalls, "t", kNoLimit));
    EXPECT_EQ(records(), 0);
    file->close();
    EXPECT_EQ(records(), 0);
    EXPECT_FALSE(disk.open);
}

TEST(TraceFile, ValidAfterEveryWrite) {
    auto file = std::make_unique<TraceFile>();
    ASSERT_TRUE(file->open(kCalls, "t", kNoLimit));
    int count = 0;
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i <= round % 7; i++) {
            ASSERT_TRUE(append(*file, "{" + std::string((size_t)(round * 37 + i * 101) % 900, 'x') + "}"));
            count++;
        }
        ASSERT_TRUE(file->flush());
        ASSERT_EQ(records(), count);
    }
    // The file doubled from 64 KiB a few times, and each time its end was missing for one write.
    EXPECT_GT(disk.text.size(), 500000u);
    EXPECT_GE(disk.broken, 3);
    EXPECT_LE(disk.broken, 6);
    file->close();
    EXPECT_EQ(records(), count);
    EXPECT_EQ(disk.text.substr(disk.text.size() - 2), "}]");
}

// Records of every length around the end of a page; none of them crosses it.
TEST(TraceFile, RecordsFitPages) {
    for (uint32_t length = TraceFile::kPage / 2 - 20; length <= TraceFile::kLongestRecord;
         length += length + 16 > TraceFile::kLongestRecord ? 1 : 31) {
        auto file = std::make_unique<TraceFile>();
        ASSERT_TRUE(file->open(kCalls, "t", kNoLimit));
        for (int i = 0; i < 5; i++) ASSERT_TRUE(append(*file, "{" + std::string(length - 2, 'y') + "}"));
        ASSERT_TRUE(file->flush());
        ASSERT_EQ(records(), 5) << length;
        for (size_t at = disk.text.find('{'); at != std::string::npos; at = disk.text.find('{', at + 1))
            ASSERT_EQ(at / TraceFile::kPage, disk.text.find('}', at) / TraceFile::kPage) << length;
    }
    auto file = std::make_unique<TraceFile>();
    ASSERT_TRUE(file->open(kCalls, "t", kNoLimit));
    EXPECT_FALSE(append(*file, "{" + std::string(TraceFile::kLongestRecord - 1, 'y') + "}"));
    EXPECT_TRUE(append(*file, "{}"));
}

TEST(TraceFile, GoesOnAfterATrim) {
    auto file = std::make_unique<TraceFile>();
    ASSERT_TRUE(file->open(kCalls, "t", kNoLimit));
    int count = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < round * 3; i++, count++) ASSERT_TRUE(append(*file, "{" + std::string(333, 'z') + "}"));
        ASSERT_TRUE(file->trim());
        ASSERT_EQ(records(), count) << round;
        ASSERT_LE(disk.text.size(), 100 + (size_t)count * 370 + (size_t)round * 400);
    }
}

TEST(TraceFile, TheLimitIsKept) {
    for (uint64_t limit : {70000ull, 1ull << 20, (1ull << 20) + 5000}) {
        auto file = std::make_unique<TraceFile>();
        ASSERT_TRUE(file->open(kCalls, "t", limit));
        int count = 0;
        while (append(*file, "{" + std::string(500, 'l') + "}")) ASSERT_LT(++count, 100000);
        EXPECT_FALSE(append(*file, "{" + std::string(500, 'l') + "}"));
        EXPECT_TRUE(file->flush());
        EXPECT_FALSE(file->failed());
        EXPECT_EQ(records(), count);
        EXPECT_LE(disk.text.size(), limit);
        EXPECT_GT((uint64_t)count * 600, limit * 9 / 10);
        file->close();
        EXPECT_EQ(records(), count);
    }
}

TEST(TraceFile, ARefusedFileIsNotWritten) {
    auto file = std::make_unique<TraceFile>();
    EXPECT_FALSE(file->open(kCalls, "refused", kNoLimit));
    EXPECT_FALSE(file->is_open());
    EXPECT_FALSE(append(*file, "{}"));
    EXPECT_FALSE(file->flush());
}

// The disk is full at the nth write: from then on nothing is written any more.
TEST(TraceFile, AFullDiskEndsIt) {
    for (int nth = 2; nth < 40; nth++) {
        auto file = std::make_unique<TraceFile>();
        ASSERT_TRUE(file->open(kCalls, "t", kNoLimit));
        disk.refuse_from = nth;
        for (int i = 0; i < 3000 && append(*file, "{" + std::string(400, 'f') + "}"); i++) {}
        EXPECT_TRUE(file->failed());
        const int writes = disk.writes;
        EXPECT_EQ(writes, nth);
        EXPECT_FALSE(append(*file, "{}"));
        EXPECT_FALSE(file->flush());
        file->close();
        EXPECT_EQ(disk.writes, writes);
        EXPECT_FALSE(disk.open);
    }
}

}  // namespace
