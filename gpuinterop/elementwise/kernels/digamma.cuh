// The logarithmic derivative of gamma. From 10 on: the asymptotic series. Below: the recurrence down to the
// interval from 1 to 2, with a quotient of polynomials that has the root as a factor. Below zero: reflection.
// float is computed in double too, because of the root. Also compiled for the host, by native/elementwise/own_loops.cpp.
GI_FN double gi_digamma(double x) {
  if (x == 0) return copysign(gi_double(0x7ff0000000000000ull), -x);
  double r = 0;
  if (x < 0) {
    if (floor(x) == x) return gi_double(0x7ff8000000000000ull);
    r = -3.14159265358979323846 / tan(3.14159265358979323846 * (x - rint(x)));
    x = 1 - x;
  }
  if (!(x < 10)) {
    const double s = 1 / (x * x);
    const double series = s * (1.0 / 12 - s * (1.0 / 120 - s * (1.0 / 252 - s * (1.0 / 240 - s * (1.0 / 132
        - s * (691.0 / 32760 - s / 12))))));
    return log(x) - 0.5 / x - series + r;
  }
  // The sum of 1 / x over the steps to [1, 2], as one fraction: a division costs more than a step.
  double above_steps = 0, below_steps = 1;
  while (x > 2) {
    x -= 1;
    above_steps = above_steps * x + below_steps;
    below_steps *= x;
  }
  if (x < 1) {
    above_steps = -1;
    below_steps = x;
    x += 1;
  }
  const double t = x - 1.5;
  const double above = 0.9510558760318328 + t * (1.1679111579426005 + t * (0.5154094731197817
      + t * (0.10042401805503895 + t * (0.008381474146487187 + t * (0.00023002912707404408
      + t * 4.33333468878948e-07)))));
  const double below = 1.0 + t * (1.673443821055568 + t * (1.0344120721454126 + t * (0.2991411261841631
      + t * (0.041684601834226634 + t * (0.0025322414569281947 + t * 4.747614405463347e-05)))));
  return (x - 1.4616321449683622 - 9.549995429965697e-17) * (above / below) + above_steps / below_steps + r;
}
