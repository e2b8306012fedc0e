// halide_vulkan_describe on every mock device, and while something fails: the text is whole JSON, says how far the look
// came and why no further, and asking leaves nothing behind.

#include "scenarios.h"

extern "C" size_t halide_vulkan_describe(void *user_context, char *out, size_t bytes);

namespace fault {
namespace {

// Strings closed, brackets in pairs, and nothing after the last.
bool is_whole(const std::string &json) {
    std::string open;
    bool quoted = false;
    for (size_t i = 0; i < json.size(); i++) {
        const char c = json[i];
        if (quoted) {
            if (c == '\\') i++;
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            open += c;
        } else if (c == '}' || c == ']') {
            if (open.empty() || open.back() != (c == '}' ? '{' : '[')) return false;
            open.pop_back();
            if (open.empty()) return i + 1 == json.size();
        }
    }
    return false;
}
std::string describe() {
    std::string text(1 << 16, 'x');
    const size_t bytes = halide_vulkan_describe(nullptr, text.data(), text.size());
    EXPECT_LE(bytes, text.size());
    EXPECT_EQ(text[bytes - 1], 0);
    text.resize(bytes - 1);
    EXPECT_TRUE(is_whole(text)) << text;
    return text;
}
bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

class MockDescribe : public ::testing::Test {
protected:
    void SetUp() override {
        register_kernels();
        halide_set_error_handler(keep_message);
        start("plain");
    }
    void TearDown() override { nothing_is_left(); }
    static void start(const char *profile) {
        EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
        mock_clear();
        HostMemory::get().fail(0, false);
        ASSERT_TRUE(mock_profile(profile));
    }
    static void nothing_is_left() {
        mock_clear();
        HostMemory::get().fail(0, false);
        EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
        EXPECT_EQ(mock_live(""), 0);
        EXPECT_EQ(mock_wrong_uses(), 0u) << mock_wrong_use();
        mock_forgive();
    }
};

TEST_F(MockDescribe, EachDevice) {
    const struct {
        const char *profile, *name, *part;
    } devices[] = {
        {"plain", "Mock discrete GPU", "\"float64\":true"},
        {"vulkan10", "Mock Vulkan 1.0 GPU", "\"float64\":false"},
        {"old", "Mock older GPU", "\"int8\":true"},
        {"mobile", "Mock mobile GPU", "\"nonCoherentAtomSize\":256"},
        {"adreno", "Mock Adreno", "\"maxComputeWorkGroupInvocations\":1024"},
        {"v3d", "Mock V3D 7.1", "\"int16\":false"},
        {"moltenvk", "Mock Apple GPU", "\"nonCoherentAtomSize\":16384"},
        {"window", "Mock GPU with a window", "\"size\":268435456"},
        {"unified", "Mock integrated GPU", "\"direct_downloads\":true"},
        {"h200", "Mock H200", "\"queue_family\":2"},
    };
    for (const auto &d : devices) {
        start(d.profile);
        const std::string text = describe();
        for (const std::string &part : {std::string("\"name\":\"") + d.name, std::string(d.part),
                                        std::string("\"chosen\":0"), std::string("\"stage\":\"done\"")})
            EXPECT_TRUE(contains(text, part)) << part << " is not in " << text;
        EXPECT_FALSE(contains(text, "\"in_use\"")) << text;
        EXPECT_EQ(mock_count_prefix("vkCreateDevice"), 0u) << "asking makes no device";
        nothing_is_left();
        mock_reset();
    }
}

TEST_F(MockDescribe, TellsWhatIsInUse) {
    Trial trial;
    small_round_trip(trial);
    EXPECT_TRUE(trial.all_right()) << trial.said();
    EXPECT_TRUE(contains(describe(), "\"in_use\":0"));
}

// As snprintf: what fits, ended with a zero byte, and how much the whole needs.
TEST_F(MockDescribe, ShortRoom) {
    const std::string whole = describe();
    for (size_t room = 0; room <= whole.size(); room += room < 64 ? 1 : 61) {
        std::string part(room + 1, '#');
        EXPECT_EQ(halide_vulkan_describe(nullptr, part.data(), room), whole.size() + 1);
        EXPECT_EQ(part[room], '#') << "written behind " << room << " bytes";
        if (room) EXPECT_EQ(std::string(part.c_str()), whole.substr(0, room - 1));
    }
}

TEST_F(MockDescribe, AnOptionThatIsWrong) {
    setenv("HL_VK_SPIN", "7", 1);
    const std::string text = describe();
    unsetenv("HL_VK_SPIN");
    EXPECT_TRUE(contains(text, "\"stage\":\"options\"") && contains(text, "HL_VK_SPIN")) << text;
}

TEST_F(MockDescribe, EachFailedCall) {
    bool failed = true;
    for (int nth = 1; failed && nth < 200; nth++) {
        mock_fail_nth(nth, 0, 0);
        const std::string text = describe();
        failed = mock_failed() > 0;
        const std::string call = failed ? mock_failed_call() : "";
        // Who cannot tell its version is taken for 1.0.
        if (failed && call != "vkEnumerateInstanceVersion")
            EXPECT_TRUE(contains(text, "\"error\":\"Vulkan: " + call + " failed with VK_")) << call << ": " << text;
        else
            EXPECT_TRUE(contains(text, "\"stage\":\"done\"") && !contains(text, "\"error\"")) << text;
        nothing_is_left();
    }
    EXPECT_FALSE(failed);
}

TEST_F(MockDescribe, EachFailedAllocation) {
    const uint64_t before = HostMemory::get().live();
    bool failed = true;
    for (int nth = 1; failed && nth < 200; nth++) {
        HostMemory::get().fail(nth, false);
        const std::string text = describe();
        failed = HostMemory::get().failed() > 0;
        if (failed) EXPECT_TRUE(contains(text, "host memory") || contains(text, "OUT_OF_HOST_MEMORY")) << text;
        nothing_is_left();
        EXPECT_EQ(HostMemory::get().live(), before);
    }
    EXPECT_FALSE(failed);
}

}  // namespace
}  // namespace fault
