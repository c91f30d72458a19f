/* SPDX-License-Identifier: Apache-2.0 */
/* Stubs for a single thread: locks never block. */
#ifndef PLAYGROUND_PTHREAD_H
#define PLAYGROUND_PTHREAD_H

typedef struct {
    char none;
} pthread_mutex_t;

static inline int pthread_mutex_init(pthread_mutex_t *lock, const void *how)
{
    (void)how;
    lock->none = 0;
    return 0;
}

static inline int pthread_mutex_destroy(pthread_mutex_t *lock)
{
    (void)lock;
    return 0;
}

static inline int pthread_mutex_lock(pthread_mutex_t *lock)
{
    (void)lock;
    return 0;
}

static inline int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    (void)lock;
    return 0;
}

#endif
