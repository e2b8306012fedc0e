// Records as JSON: written out in full for each kind, and with names and numbers at their worst.

#include <gtest/gtest.h>

#include <string>

#include "vulkan_trace_text.h"

using namespace halide_vulkan;

namespace {

TraceRecord record(TraceKind kind, const char *name) {
    TraceRecord r = {};
    r.kind = kind;
    r.track = 42;
    r.begin_ns = 1234567;
    r.end_ns = 1300000;
    for (uint32_t i = 0; i < kTraceNumbers; i++) r.numbers[i] = i + 1;
    set_trace_name(r.name, name);
    return r;
}

std::string text_of(const TraceRecord &r, uint32_t process = 7) {
    char text[kTraceText];
    const uint32_t length = write_trace_text(r, process, text);
    EXPECT_EQ(length, strlen(text));
    return text;
}

TEST(TraceText, Spans) {
    EXPECT_EQ(
        text_of(record(TraceKind::launch, "k")),
        R"({"ph":"X","name":"k","pid":7,"tid":42,"cat":"launch","ts":1234.567,"dur":65.433,"args":{"submission":1,)"
        R"("groups_x":2,"groups_y":3,"groups_z":4,"threads_x":5,"threads_y":6,"threads_z":7}})");
    EXPECT_EQ(
        text_of(record(TraceKind::copy, "upload")),
        R"({"ph":"X","name":"upload","pid":7,"tid":42,"cat":"copy","ts":1234.567,"dur":65.433,"args":{"bytes":1}})");
    EXPECT_EQ(text_of(record(TraceKind::session, "s")),
              R"({"ph":"X","name":"s","pid":7,"tid":42,"cat":"session","ts":1234.567,"dur":65.433})");
}

TEST(TraceText, TheGpuIsAProcessOfItsOwn) {
    TraceRecord r = record(TraceKind::gpu_copy, "upload");
    r.device = 2;
    EXPECT_EQ(text_of(r),
              R"({"ph":"X","name":"upload","pid":20000007,"tid":42,"cat":"gpu_copy","ts":1234.567,"dur":65.433,)"
              R"("args":{"submission":1,"calibrated":2,"bytes":3}})");
}

TEST(TraceText, NamesNotesAndFlows) {
    EXPECT_EQ(text_of(record(TraceKind::name_process, "p")),
              R"({"ph":"M","name":"process_name","pid":7,"tid":42,"args":{"name":"p"}})");
    EXPECT_EQ(text_of(record(TraceKind::name_thread, "t")),
              R"({"ph":"M","name":"thread_name","pid":7,"tid":42,"args":{"name":"t"}})");
    EXPECT_EQ(text_of(record(TraceKind::note, "n")),
              R"({"ph":"i","s":"g","name":"n","pid":7,"tid":42,"cat":"note","ts":1234.567,"args":{"count":1}})");
    EXPECT_EQ(text_of(record(TraceKind::flow_begin, "")),
              R"({"ph":"s","name":"submission","pid":7,"tid":42,"cat":"flow","ts":1234.567,"id":"1/2"})");
    EXPECT_EQ(text_of(record(TraceKind::flow_end, "")),
              R"({"ph":"f","bp":"e","name":"submission","pid":7,"tid":42,"cat":"flow","ts":1234.567,"id":"1/2"})");
}

TEST(TraceText, NamesAreEscaped) {
    EXPECT_NE(
        text_of(record(TraceKind::call, "a\"b\\c\n\x01\x7f\xc3\xa4z")).find(R"("a\u0022b\u005cc\u000a\u0001???z")"),
        std::string::npos);
}

TEST(TraceText, NamesAreCut) {
    const TraceRecord r = record(TraceKind::call, std::string(500, 'n').c_str());
    EXPECT_EQ(std::string(r.name), std::string(kTraceName - 1, 'n'));
    const TraceRecord none = record(TraceKind::call, nullptr);
    EXPECT_STREQ(none.name, "");
}

TEST(TraceText, TheWorstFits) {
    for (uint32_t kind = 0; kind <= (uint32_t)TraceKind::name_thread; kind++) {
        TraceRecord r = record((TraceKind)kind, std::string(500, '"').c_str());
        r.device = UINT32_MAX;
        r.track = r.end_ns = UINT64_MAX;
        r.begin_ns = 0;
        for (uint64_t &number : r.numbers) number = UINT64_MAX;
        const std::string text = text_of(r, UINT32_MAX);
        EXPECT_LT(text.size() + 1, kTraceText) << kind;
        EXPECT_EQ(text.back(), '}') << kind;
    }
}

TEST(TraceText, TimesHaveThreeDecimalsAndNeverRunBackwards) {
    TraceRecord r = record(TraceKind::call, "c");
    r.begin_ns = 5000000000000001009;
    r.end_ns = r.begin_ns - 1;
    EXPECT_NE(text_of(r).find(R"("ts":5000000000000001.009,"dur":0.000)"), std::string::npos);
}

}  // namespace
