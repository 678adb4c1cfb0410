package fleet

import (
	"cmp"
	"math"
	"slices"
)

// Median returns the median, the lower one of two; 0 if there are no values.
func Median[T cmp.Ordered](values []T) T { return Quantile(slices.Sorted(slices.Values(values)), 0.5) }

// Quantile returns the value that the fraction q (0 to 1) of the sorted values does not exceed; 0
// if there are no values.
func Quantile[T cmp.Ordered](sorted []T, q float64) T {
	if len(sorted) == 0 {
		return *new(T)
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Bucket is the number of observations up to a bound.
type Bucket struct{ Bound, Count float64 }

// Histogram has the numbers of observations by bound; higher bounds include the lower ones.
type Histogram []Bucket

// Since returns the observations since an earlier reading.
func (h Histogram) Since(before Histogram) Histogram {
	later := slices.Clone(h)
	for i := range min(len(later), len(before)) {
		later[i].Count -= before[i].Count
	}
	return later
}

// Quantile returns the bound that the fraction q of the observations does not exceed. It assumes
// that the observations in a bucket are evenly distributed; 0 if there are none.
func (h Histogram) Quantile(q float64) float64 {
	if len(h) == 0 || h[len(h)-1].Count == 0 {
		return 0
	}
	want, below := q*h[len(h)-1].Count, Bucket{}
	for _, b := range h {
		if b.Count >= want && b.Count > below.Count {
			if math.IsInf(b.Bound, 1) {
				return below.Bound // the histogram says no more
			}
			return below.Bound + (b.Bound-below.Bound)*(want-below.Count)/(b.Count-below.Count)
		}
		below = b
	}
	return below.Bound
}

// Fit returns the factors of the columns of x that approximate y best, by least squares; false if
// the columns are not independent.
// columns are not independent.
func Fit(x [][]float64, y []float64) ([]float64, bool) {
	if len(x) == 0 || len(x) < len(x[0]) {
		return nil, false
	}
	n := len(x[0])
	rows := make([][]float64, n) // of the normal equations, with their right-hand side
	for i := range rows {
		rows[i] = make([]float64, n+1)
		for k := range x {
			for j := range n {
				rows[i][j] += x[k][i] * x[k][j]
			}
			rows[i][n] += x[k][i] * y[k]
		}
	}
	return solve(rows)
}

// solve solves linear equations by elimination.
func solve(rows [][]float64) ([]float64, bool) {
	n := len(rows)
	for column := range n {
		pivot := column
		for i := column; i < n; i++ {
			if math.Abs(rows[i][column]) > math.Abs(rows[pivot][column]) {
				pivot = i
			}
		}
		rows[column], rows[pivot] = rows[pivot], rows[column]
		// What remains of a column that depends on others is a rounding error.
		if math.Abs(rows[column][column]) < 1e-9 {
			return nil, false
		}
		for i := range n {
			if i == column {
				continue
			}
			factor := rows[i][column] / rows[column][column]
			for j := column; j <= n; j++ {
				rows[i][j] -= factor * rows[column][j]
			}
		}
	}
	solution := make([]float64, n)
	for i := range n {
		solution[i] = rows[i][n] / rows[i][i]
	}
	return solution, true
}
