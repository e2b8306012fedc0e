// objects.cpp: the ledger. Every object of the mock is in it from its creation to its end.
//
// A handle is a number that counts up, so a stale handle never means a newer object.

#include "state.h"

#include <cstring>
#include <unordered_map>

namespace mock {

namespace {

std::unordered_map<uint64_t, Object *> &objects = *new std::unordered_map<uint64_t, Object *>;
std::map<std::string, int64_t> &living = *new std::map<std::string, int64_t>;
uint64_t last_handle = 0;
uint64_t wrong_count = 0;
std::string &first_wrong = *new std::string;

}  // namespace

thread_local Call current_call;

void wrong(const std::string &what) {
    if (wrong_count++ == 0) first_wrong = std::string(kCalls[current_call].name) + ": " + what;
}

Object *find_object(const char *type, uint64_t handle) {
    const auto found = objects.find(handle);
    if (found == objects.end()) return nullptr;
    return !type || strcmp(type, found->second->type) == 0 ? found->second : nullptr;
}

void add_object(Object *object, const char *type, Object *parent, const VkAllocationCallbacks *callbacks) {
    // Multiples of 16, as pointers would be: some programs hash them so.
    object->handle = ++last_handle << 4;
    object->type = type;
    object->parent = parent;
    object->device = parent ? parent->device : nullptr;
    object->callbacks = callbacks;
    objects[object->handle] = object;
    living[type]++;
}

void end_child(Object *object) {
    if (object->handle == 0) return;  // the stand-in for a stale handle
    if (is_busy(*object)) wrong(std::string(object->type) + " is used by a submission that is not done");
    living[object->type]--;
    objects.erase(object->handle);
    delete object;
}

void end_object(Object *object, const VkAllocationCallbacks *callbacks) {
    if ((object->callbacks == nullptr) != (callbacks == nullptr))
        wrong(std::string(object->type) + " is destroyed with other allocation callbacks than it was made with");
    end_child(object);
}

std::vector<Object *> children_of(const Object *parent) {
    std::vector<Object *> children;
    for (const auto &entry : objects) {
        if (entry.second->parent == parent) children.push_back(entry.second);
    }
    return children;
}

}  // namespace mock

using namespace mock;

int64_t mock_live(const char *type) {
    std::lock_guard<std::mutex> lock(mutex);
    if (*type) {
        bool known = false;
#define X(handle, ours) known = known || std::string(type) == #handle;
        MOCK_TYPES(X)
#undef X
        return known ? living[type] : -1;
    }
    int64_t all = 0;
    for (const auto &entry : living) all += entry.second;
    return all;
}

uint64_t mock_wrong_uses() {
    std::lock_guard<std::mutex> lock(mutex);
    return wrong_count;
}
const char *mock_wrong_use() {
    std::lock_guard<std::mutex> lock(mutex);
    static thread_local std::string copy;
    copy = first_wrong;
    return copy.c_str();
}
void mock_forgive() {
    std::lock_guard<std::mutex> lock(mutex);
    wrong_count = 0;
    first_wrong.clear();
}
