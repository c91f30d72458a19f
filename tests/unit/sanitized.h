/* SPDX-License-Identifier: Apache-2.0 */
/* Sanitizers make what runs several times as slow, and look at each line, not
 * at results: of many alike cases, or steps of a run, they get the first fifth.
 * A build without them, which `./test.sh` makes too, goes through all. */
#ifndef SANITIZED_H
#define SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define OF_CASES(n) (SANITIZED ? ((n) + 4) / 5 : (n))

#endif
