/* Runs a task on several threads, and counts the processors that the process may use. */
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

enum { THREADS_MOST = 64 };

int bw_parallel_processors(void) {
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0) return CPU_COUNT(&mine);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more than a cpu_set_t holds */
    return online > 1 ? (int)online : 1;
}

uint64_t bw_parallel_thread(void) {
    return (uint64_t)pthread_self();
}

void bw_parallel_run(int threads, void *(*task)(void *context), void *context) {
    pthread_t others[THREADS_MOST];
    sigset_t every, before;
    int started = 0;
    /* Signals are the caller's business: the others inherit a mask that lets none through. */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    while (started < threads - 1 && started < THREADS_MOST &&
           pthread_create(&others[started], NULL, task, context) == 0) {
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    task(context);
    for (int i = 0; i < started; i++) pthread_join(others[i], NULL);
}
