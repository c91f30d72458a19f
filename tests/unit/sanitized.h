/* SPDX-License-Identifier: Apache-2.0 */
/* Number of test cases. Builds with -Dall_cases=true run all cases, except
 * those with sanitizers, which are several times slower. Other builds run the
 * first fifth of similar cases, or of a run's steps. */
#ifndef SANITIZED_H
#define SANITIZED_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#if defined(TEST_ALL_CASES) && !SANITIZED
#define FEW_CASES 0
#else
#define FEW_CASES 1
#endif
#define OF_CASES(n) (FEW_CASES ? ((n) + 4) / 5 : (n))

#endif
