// vulkan_json.h: valid JSON whatever the names hold, and the room it needs whatever room there is.

#include "vulkan_json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

using namespace halide_vulkan;

namespace {

size_t write(char *to, size_t capacity) {
    Json json(to, capacity);
    json.begin(nullptr, '{').text("name", "a \"b\" \\ \n\x01 \xc3\xa9").number("most", UINT64_MAX);
    json.begin("list", '[').number(nullptr, 0).number(nullptr, 7).begin(nullptr, '{').end('}').end(']');
    json.begin("empty", '[').end(']').flag("yes", true).flag("no", false).text("none", nullptr);
    return json.end('}').size();
}

const std::string kWhole = R"({"name":"a \"b\" \\ \u000a\u0001 )"
                           "\xc3\xa9"
                           R"(","most":18446744073709551615,"list":[0,7,{}],"empty":[],)"
                           R"("yes":true,"no":false,"none":""})";

}  // namespace

TEST(Json, IsWrittenWhole) {
    std::vector<char> room(kWhole.size() + 1, 'x');
    EXPECT_EQ(write(room.data(), room.size()), kWhole.size() + 1);
    EXPECT_EQ(std::string(room.data()), kWhole);
}

TEST(Json, IsCutAndNeverPastTheEnd) {
    for (size_t capacity = 0; capacity < kWhole.size() + 1; capacity++) {
        std::vector<char> room(capacity + 8, 'x');
        EXPECT_EQ(write(room.data(), capacity), kWhole.size() + 1)
            << "the room it needs does not depend on what it got";
        if (capacity) {
            EXPECT_EQ(std::string(room.data()), kWhole.substr(0, capacity - 1));
        }
        EXPECT_EQ(std::string(room.data() + capacity, 8), "xxxxxxxx");
    }
    EXPECT_EQ(write(nullptr, 0), kWhole.size() + 1);
}
