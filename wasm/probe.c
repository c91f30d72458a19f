/* SPDX-License-Identifier: Apache-2.0 */
/* Tests whether clang links for WebAssembly: see meson.build. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double probe(double x);

__attribute__((export_name("probe"))) double probe(double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", x);
    return llround(strtod(text, NULL)) + (double)(malloc(1) != NULL);
}
