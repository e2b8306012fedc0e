// Halide's mutexes, conditions and threads by way of pthread's.
//
// Halide's runtime has its own mutex and condition, made of atomic operations and a queue of waiters. It comes as
// compiled code that no sanitizer has instrumented, so ThreadSanitizer sees neither that a lock orders what two threads
// do, nor in which order locks are taken. The definitions here are strong where Halide's are weak, so a program that
// links both has these, in Halide's own code as well.
//
// HV_PLANT_NO_LOCKS=1 makes a mutex lock nothing: a fault that ThreadSanitizer must report (native_detects_race).
//
// A halide_mutex is one word, and zero is a mutex that nobody holds; so the word points to a pthread_mutex_t that the
// first use makes. Nothing ever says that a halide_mutex ends. What was made is kept in a list until the process ends,
// which is a few hundred bytes for each device that a program makes.

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#include "HalideRuntime.h"

struct halide_thread {
    pthread_t thread;
    void (*run)(void *);
    void *closure;
};

namespace {

template<typename T>
struct Node {
    T object;
    Node *next;
};

template<typename T>
Node<T> *nodes;  // all that were made; atomic

// The pthread object behind a word of Halide's, made if need be.
template<typename T>
T *object_behind(uintptr_t *word, int (*init)(T *)) {
    Node<T> *known = (Node<T> *)__atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (known) return &known->object;
    Node<T> *fresh = (Node<T> *)calloc(1, sizeof(Node<T>));
    if (!fresh || init(&fresh->object) != 0) abort();
    uintptr_t none = 0;
    if (!__atomic_compare_exchange_n(word, &none, (uintptr_t)fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        free(fresh);  // another thread was first; nobody has seen this one
        return &((Node<T> *)none)->object;
    }
    fresh->next = __atomic_load_n(&nodes<T>, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&nodes<T>, &fresh->next, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {}
    return &fresh->object;
}

pthread_mutex_t *behind(halide_mutex *mutex) {
    return object_behind<pthread_mutex_t>((uintptr_t *)mutex->_private,
                                          [](pthread_mutex_t *m) { return pthread_mutex_init(m, nullptr); });
}
pthread_cond_t *behind(halide_cond *cond) {
    return object_behind<pthread_cond_t>((uintptr_t *)cond->_private,
                                         [](pthread_cond_t *c) { return pthread_cond_init(c, nullptr); });
}

bool locks_nothing() { return getenv("HV_PLANT_NO_LOCKS") != nullptr; }

// A lock that is misused would show as a hang or as nothing; here it ends the process.
void must(int result) {
    if (result != 0) abort();
}

void *run_thread(void *of) {
    halide_thread *t = (halide_thread *)of;
    t->run(t->closure);
    return nullptr;
}

}  // namespace

extern "C" {

void halide_mutex_lock(halide_mutex *mutex) {
    if (!locks_nothing()) must(pthread_mutex_lock(behind(mutex)));
}
void halide_mutex_unlock(halide_mutex *mutex) {
    if (!locks_nothing()) must(pthread_mutex_unlock(behind(mutex)));
}
void halide_cond_signal(halide_cond *cond) { must(pthread_cond_signal(behind(cond))); }
void halide_cond_broadcast(halide_cond *cond) { must(pthread_cond_broadcast(behind(cond))); }
void halide_cond_wait(halide_cond *cond, halide_mutex *mutex) {
    if (locks_nothing())
        sched_yield();  // what is not locked cannot be waited with
    else
        must(pthread_cond_wait(behind(cond), behind(mutex)));
}

halide_thread *halide_spawn_thread(void (*run)(void *), void *closure) {
    halide_thread *t = (halide_thread *)malloc(sizeof(halide_thread));
    if (!t) return nullptr;
    t->run = run;
    t->closure = closure;
    if (pthread_create(&t->thread, nullptr, run_thread, t) == 0) return t;
    free(t);
    return nullptr;
}

void halide_join_thread(halide_thread *t) {
    must(pthread_join(t->thread, nullptr));
    free(t);
}

}  // extern "C"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// The loader unloads drivers with each instance. What a driver's own variables point to is then a leak for the leak
// checker, without a name that could tell it from ours. So libraries stay.
extern "C" int dlclose(void *) { return 0; }
#endif
#endif
