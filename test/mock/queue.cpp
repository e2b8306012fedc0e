// queue.cpp: submissions, fences and semaphores: when work is done, and in what order.
//
// Each queue is a line of submissions. One finishes when it is first in its line, what it waits for is signaled, and
// the test lets it (MockCompletion). Its commands are carried out at that moment, then its fence and semaphores signal.

#include "state.h"

#include <chrono>
#include <cstring>

namespace mock {

namespace {

uint64_t submission_count = 0;
std::vector<Device *> &devices_at_work = *new std::vector<Device *>;

// A wait that is never answered is a test that hangs; better that it says so.
constexpr auto kPatience = std::chrono::seconds(200);

bool is_ready(const Submission &s) {
    for (const auto &wait : s.waits) {
        if (wait.first->value < wait.second) return false;
    }
    return true;
}

void let_go(Submission &s) {
    for (Object *object : s.uses) object->pending--;
    for (CommandBuffer *buffer : s.commands) {
        if (buffer->one_time) {
            forget_commands(*buffer);
            buffer->state = CommandBuffer::spent;
        }
    }
}

// The first of its queue, which is ready.
void finish_first(Queue &queue) {
    Submission s = std::move(queue.submissions.front());
    queue.submissions.pop_front();
    for (const auto &wait : s.waits) {
        if (!wait.first->timeline) wait.first->value = 0;
    }
    for (CommandBuffer *buffer : s.commands) {
        for (const Command &command : buffer->commands) command.run();
    }
    if (s.fence) s.fence->signaled = true;
    for (const auto &signal : s.signals) signal.first->value = signal.second;
    let_go(s);
    finished_some.notify_all();
}

Queue *first_ready() {
    Queue *first = nullptr;
    for (Device *device : devices_at_work) {
        for (Queue *queue : device->queues) {
            if (queue->submissions.empty() || !is_ready(queue->submissions.front())) continue;
            if (!first || queue->submissions.front().number < first->submissions.front().number) first = queue;
        }
    }
    return first;
}

// The queue and the place in it of the submission that will signal.
template<typename Signals>
bool find_signal(Device &device, Signals signals, Queue **queue, size_t *place) {
    for (Queue *q : device.queues) {
        for (size_t i = 0; i < q->submissions.size(); i++) {
            if (!signals(q->submissions[i])) continue;
            *queue = q;
            *place = i;
            return true;
        }
    }
    return false;
}

// A look at something that a submission will signal. `waits`: the caller would block on it.
template<typename Signals>
void look(Device &device, bool waits, Signals signals) {
    Queue *queue = nullptr;
    size_t place = 0;
    if (completion == MOCK_BY_HAND || !find_signal(device, signals, &queue, &place)) return;
    Submission &s = queue->submissions[place];
    if (completion == MOCK_AFTER_POLLS && !waits && s.polls_left > 0) {
        s.polls_left--;
        return;
    }
    const uint64_t number = s.number;
    // Other queues may have to go first.
    while (!queue->submissions.empty() && queue->submissions.front().number <= number) {
        if (is_ready(queue->submissions.front())) {
            finish_first(*queue);
        } else if (Queue *other = first_ready()) {
            finish_first(*other);
        } else {
            return;
        }
    }
}

// Blocks until done() or the time is up, with the mutex free meanwhile. done() looks its objects up anew each time.
template<typename Done>
VkResult block(Device &device, uint64_t timeout_ns, Done done) {
    const auto patience = std::chrono::steady_clock::now() + kPatience;
    const auto deadline = timeout_ns > 1000000000000ull
                              ? patience
                              : std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
    std::unique_lock<std::mutex> lock(mutex, std::adopt_lock);
    const uint64_t device_handle = device.handle;
    VkResult result = VK_SUCCESS;
    while (!done()) {
        Device *still = static_cast<Device *>(find_object("VkDevice", device_handle));
        if (!still || still->lost) {
            result = VK_ERROR_DEVICE_LOST;
            break;
        }
        if (finished_some.wait_until(lock, deadline) == std::cv_status::timeout && !done()) {
            if (timeout_ns > 1000000000000ull) {
                fprintf(stderr, "mock: %s waits for work that nobody finishes\n", kCalls[current_call].name);
                abort();
            }
            result = VK_TIMEOUT;
            break;
        }
    }
    lock.release();
    return result;
}

void use(Submission &s, Object *object) {
    object->pending++;
    s.uses.push_back(object);
}

// Ownership is never handed over by barriers here: a buffer stays with one family, or is shared.
void use_in_family(Buffer &buffer, uint32_t family) {
    if (buffer.families.empty()) buffer.families.push_back(family);
    for (uint32_t one : buffer.families) {
        if (one == family) return;
    }
    wrong("a buffer is used by a queue family that it does not belong to");
}

void use_commands(Submission &s, Queue &queue, CommandBuffer &buffer) {
    if (buffer.state != CommandBuffer::executable) wrong("a command buffer that is not ended is submitted");
    if (is_busy(buffer)) wrong("a command buffer is submitted that is not done");
    if (buffer.parent && ((CommandPool *)buffer.parent)->family != queue.family)
        wrong("a command buffer of another queue family is submitted");
    s.commands.push_back(&buffer);
    use(s, &buffer);
    for (const Command &command : buffer.commands) {
        for (const auto &named : command.uses) {
            Object *object = find_object(named.first, named.second);
            if (!object) {
                wrong(std::string("a ") + named.first + " was destroyed between recording and submission");
                continue;
            }
            use(s, object);
            if (strcmp(named.first, "VkBuffer") != 0) continue;
            use_in_family(*static_cast<Buffer *>(object), queue.family);
            if (Object *memory = find_object("VkDeviceMemory", static_cast<Buffer *>(object)->memory)) use(s, memory);
        }
    }
}

}  // namespace

void lose(Device &device) {
    device.lost = true;
    for (Queue *queue : device.queues) {
        for (Submission &s : queue->submissions) let_go(s);
        queue->submissions.clear();
    }
    for (Object *child : children_of(&device)) {
        if (lost_says_done && strcmp(child->type, "VkSemaphore") == 0 && static_cast<Semaphore *>(child)->timeline)
            static_cast<Semaphore *>(child)->value = UINT64_MAX;
    }
    finished_some.notify_all();
}

uint64_t finish_submissions(uint64_t n) {
    uint64_t done = 0;
    for (Queue *queue = first_ready(); queue && (n == 0 || done < n); queue = first_ready()) {
        finish_first(*queue);
        done++;
    }
    return done;
}

uint64_t pending_submissions() {
    uint64_t all = 0;
    for (Device *device : devices_at_work) {
        for (Queue *queue : device->queues) all += queue->submissions.size();
    }
    return all;
}

void finish_all_of(Device &device) {
    lose(device);
    for (size_t i = 0; i < devices_at_work.size(); i++) {
        if (devices_at_work[i] != &device) continue;
        devices_at_work.erase(devices_at_work.begin() + (long)i);
        break;
    }
}

VkResult do_vkQueueSubmit(VkQueue handle, uint32_t count, const VkSubmitInfo *infos, VkFence fence_handle) {
    Queue &queue = get(handle);
    if (!queue.device) return VK_ERROR_DEVICE_LOST;
    Device &device = *queue.device;
    bool listed = false;
    for (Device *d : devices_at_work) listed = listed || d == &device;
    if (!listed) devices_at_work.push_back(&device);
    for (uint32_t i = 0; i < count || (i == 0 && fence_handle); i++) {
        const VkSubmitInfo empty = {};
        const VkSubmitInfo &info = count ? infos[i] : empty;
        Submission s;
        s.number = ++submission_count;
        s.polls_left = completion_polls;
        const VkTimelineSemaphoreSubmitInfo *values = nullptr;
        for (auto *next = (const VkBaseInStructure *)info.pNext; next; next = next->pNext) {
            if (next->sType == VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO)
                values = (const VkTimelineSemaphoreSubmitInfo *)next;
        }
        for (uint32_t k = 0; k < info.waitSemaphoreCount; k++) {
            Semaphore &semaphore = get(info.pWaitSemaphores[k]);
            if (semaphore.timeline && (!values || k >= values->waitSemaphoreValueCount)) wrong("no value to wait for");
            s.waits.push_back({&semaphore, semaphore.timeline && values ? values->pWaitSemaphoreValues[k] : 1});
            use(s, &semaphore);
        }
        for (uint32_t k = 0; k < info.commandBufferCount; k++) use_commands(s, queue, get(info.pCommandBuffers[k]));
        for (uint32_t k = 0; k < info.signalSemaphoreCount; k++) {
            Semaphore &semaphore = get(info.pSignalSemaphores[k]);
            if (semaphore.timeline && (!values || k >= values->signalSemaphoreValueCount)) wrong("no value to signal");
            s.signals.push_back({&semaphore, semaphore.timeline && values ? values->pSignalSemaphoreValues[k] : 1});
            use(s, &semaphore);
        }
        if (fence_handle && i + 1 >= count) {
            Fence &fence = get(fence_handle);
            if (fence.signaled) wrong("the fence was not reset");
            if (is_busy(fence)) wrong("the fence belongs to a submission that is not done");
            s.fence = &fence;
            use(s, &fence);
        }
        queue.submissions.push_back(std::move(s));
    }
    if (loses_in_flight())
        lose(device);
    else if (completion == MOCK_AT_ONCE)
        finish_submissions(0);
    return VK_SUCCESS;
}

VkResult do_vkQueueWaitIdle(VkQueue handle) {
    Queue &queue = get(handle);
    if (!queue.device) return VK_ERROR_DEVICE_LOST;
    Device &device = *queue.device;
    if (completion != MOCK_BY_HAND) finish_submissions(0);
    const VkQueue again = handle;
    return block(device, UINT64_MAX, [again] {
        Object *object = find_object("VkQueue", (uint64_t)again);
        return !object || static_cast<Queue *>(object)->submissions.empty();
    });
}

VkResult do_vkDeviceWaitIdle(VkDevice handle) {
    Device &device = get(handle);
    if (completion != MOCK_BY_HAND) finish_submissions(0);
    const std::vector<Queue *> queues = device.queues;
    return block(device, UINT64_MAX, [queues] {
        for (const Queue *queue : queues) {
            if (!queue->submissions.empty()) return false;
        }
        return true;
    });
}

VkResult do_vkCreateFence(VkDevice handle, const VkFenceCreateInfo *info, const VkAllocationCallbacks *callbacks,
                          VkFence *out) {
    make(get(handle), callbacks, out)->signaled = (info->flags & VK_FENCE_CREATE_SIGNALED_BIT) != 0;
    return VK_SUCCESS;
}

VkResult do_vkResetFences(VkDevice, uint32_t count, const VkFence *fences) {
    for (uint32_t i = 0; i < count; i++) {
        Fence &fence = get(fences[i]);
        if (is_busy(fence)) wrong("a fence is reset whose submission is not done");
        fence.signaled = false;
    }
    return VK_SUCCESS;
}

VkResult do_vkGetFenceStatus(VkDevice handle, VkFence fence_handle) {
    Fence &fence = get(fence_handle);
    look(get(handle), false, [&](const Submission &s) { return s.fence == &fence; });
    return fence.signaled ? VK_SUCCESS : VK_NOT_READY;
}

VkResult do_vkWaitForFences(VkDevice handle, uint32_t count, const VkFence *list, VkBool32 all, uint64_t timeout) {
    Device &device = get(handle);
    const std::vector<VkFence> fences(list, list + count);
    for (VkFence one : fences) {
        Fence &fence = get(one);
        if (!fence.signaled && !fence.pending && !device.lost) wrong("a fence is waited for that nothing signals");
        look(device, timeout > 0, [&](const Submission &s) { return s.fence == &fence; });
    }
    return block(device, timeout, [fences, all] {
        uint32_t done = 0;
        for (VkFence one : fences) {
            Object *fence = find_object("VkFence", (uint64_t)one);
            if (!fence || static_cast<Fence *>(fence)->signaled) done++;
        }
        return all ? done == fences.size() : done > 0;
    });
}

VkResult do_vkCreateSemaphore(VkDevice handle, const VkSemaphoreCreateInfo *info,
                              const VkAllocationCallbacks *callbacks, VkSemaphore *out) {
    Device &device = get(handle);
    Semaphore *semaphore = make(device, callbacks, out);
    for (auto *next = (const VkBaseInStructure *)info->pNext; next; next = next->pNext) {
        if (next->sType != VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO) continue;
        const auto &type = *(const VkSemaphoreTypeCreateInfo *)next;
        semaphore->timeline = type.semaphoreType == VK_SEMAPHORE_TYPE_TIMELINE;
        semaphore->value = type.initialValue;
        if (semaphore->timeline && !device.profile->timeline) wrong("this device has no timeline semaphores");
    }
    return VK_SUCCESS;
}

VkResult do_vkGetSemaphoreCounterValue(VkDevice handle, VkSemaphore semaphore_handle, uint64_t *value) {
    Semaphore &semaphore = get(semaphore_handle);
    look(get(handle), false, [&](const Submission &s) {
        for (const auto &signal : s.signals) {
            if (signal.first == &semaphore) return true;
        }
        return false;
    });
    *value = semaphore.value;
    return VK_SUCCESS;
}
VkResult do_vkGetSemaphoreCounterValueKHR(VkDevice device, VkSemaphore semaphore, uint64_t *value) {
    return do_vkGetSemaphoreCounterValue(device, semaphore, value);
}

VkResult do_vkWaitSemaphores(VkDevice handle, const VkSemaphoreWaitInfo *info, uint64_t timeout) {
    Device &device = get(handle);
    std::vector<std::pair<VkSemaphore, uint64_t>> wanted;
    for (uint32_t i = 0; i < info->semaphoreCount; i++) {
        wanted.push_back({info->pSemaphores[i], info->pValues[i]});
        Semaphore &semaphore = get(info->pSemaphores[i]);
        const uint64_t value = info->pValues[i];
        if (semaphore.value >= value) continue;
        look(device, timeout > 0, [&](const Submission &s) {
            for (const auto &signal : s.signals) {
                if (signal.first == &semaphore && signal.second >= value) return true;
            }
            return false;
        });
    }
    const bool any = (info->flags & VK_SEMAPHORE_WAIT_ANY_BIT) != 0;
    return block(device, timeout, [wanted, any] {
        size_t done = 0;
        for (const auto &one : wanted) {
            Object *semaphore = find_object("VkSemaphore", (uint64_t)one.first);
            if (!semaphore || static_cast<Semaphore *>(semaphore)->value >= one.second) done++;
        }
        return any ? done > 0 : done == wanted.size();
    });
}
VkResult do_vkWaitSemaphoresKHR(VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t timeout) {
    return do_vkWaitSemaphores(device, info, timeout);
}

VkResult do_vkSignalSemaphore(VkDevice, const VkSemaphoreSignalInfo *info) {
    Semaphore &semaphore = get(info->semaphore);
    if (!semaphore.timeline || info->value <= semaphore.value) wrong("a timeline only goes forward");
    semaphore.value = info->value;
    finished_some.notify_all();
    if (completion == MOCK_AT_ONCE) finish_submissions(0);
    return VK_SUCCESS;
}
VkResult do_vkSignalSemaphoreKHR(VkDevice device, const VkSemaphoreSignalInfo *info) {
    return do_vkSignalSemaphore(device, info);
}

}  // namespace mock
