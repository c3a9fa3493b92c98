//! A backend of plotters that writes SVG with classes instead of colours, so that the page's style sheet can give a
//! light and a dark look to the same picture, and print it.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Write;
use std::rc::Rc;

use maud::{Markup, PreEscaped, html};
use plotters::prelude::{Cartesian2d, ChartBuilder, ChartContext, IntoDrawingArea};
use plotters::style::{Color, IntoFont, IntoTextStyle, RGBColor, ShapeStyle, TRANSPARENT};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

use super::axis::Axis;

/// Units of the picture's own coordinates for each CSS pixel: plotters has whole coordinates only.
pub(super) const SCALE: i32 = 2;

/// How large a picture is, in CSS pixels at which its letters have the size of the page's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: u32,
    pub(super) height: u32,
}

/// What something is drawn with: a class of the style sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Axis,
    Grid,
    Label,
    Rollout,
    Alive,
    AliveLine,
    Reused,
    Rules,
    Other,
}

impl Ink {
    const ALL: [Ink; 9] = [
        Ink::Axis,
        Ink::Grid,
        Ink::Label,
        Ink::Rollout,
        Ink::Alive,
        Ink::AliveLine,
        Ink::Reused,
        Ink::Rules,
        Ink::Other,
    ];

    pub(super) fn class(self) -> &'static str {
        match self {
            Ink::Axis => "axis",
            Ink::Grid => "grid",
            Ink::Label => "label",
            Ink::Rollout => "rollout",
            Ink::Alive => "alive",
            Ink::AliveLine => "alive-line",
            Ink::Reused => "reused",
            Ink::Rules => "rules",
            Ink::Other => "other",
        }
    }

    /// plotters knows colours only: this one stands for the class.
    fn color(self) -> RGBColor {
        let place = Ink::ALL.iter().position(|ink| *ink == self).unwrap_or(0);
        RGBColor(u8::try_from(place).unwrap_or(0), 0, 0)
    }

    fn of(color: BackendColor) -> Option<Ink> {
        (color.alpha > 0.0).then(|| Ink::ALL.get(usize::from(color.rgb.0)).copied()).flatten()
    }

    /// To fill with.
    pub(super) fn filled(self) -> ShapeStyle {
        self.color().filled()
    }

    /// To draw lines with.
    pub(super) fn stroke(self) -> ShapeStyle {
        Color::stroke_width(&self.color(), 2)
    }
}

/// The elements of a picture, in the order in which they were drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet(Rc<RefCell<String>>);

impl Sheet {
    /// Adds elements that plotters does not draw.
    pub(super) fn add(&self, markup: Markup) {
        self.0.borrow_mut().push_str(&markup.0);
    }

    fn write(&self, element: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.0.borrow_mut().write_fmt(element);
    }

    /// All elements.
    pub(super) fn into_markup(self) -> Markup {
        PreEscaped(self.0.take())
    }
}

/// Axes with what is drawn between them.
pub(super) type Chart<'a> = ChartContext<'a, Svg, Cartesian2d<Axis, Axis>>;

/// A failure that cannot be: the backend writes to memory, and the sizes are ours.
pub(super) const DRAWS: &str = "a picture in memory can be drawn";

/// Draws axes for the whole size, and what `inside` adds.
pub(super) fn chart(
    size: Size,
    x: Axis,
    y: Axis,
    inside: impl FnOnce(&mut Chart<'_>, &Sheet),
) -> Markup {
    let sheet = Sheet::default();
    let area = Svg { size, sheet: sheet.clone() }.into_drawing_area();
    let unit = SCALE as u32;
    let left = y.label_width() * unit;
    let mut chart = ChartBuilder::on(&area)
        .margin(2 * unit)
        .margin_right(14 * unit)
        .margin_top(20 * unit)
        .x_label_area_size(24 * unit)
        .y_label_area_size(left)
        .build_cartesian_2d(x, y)
        .expect(DRAWS);
    let font = ("sans-serif", 12 * SCALE).into_font();
    let ink = Ink::Label.color();
    let label = font.into_text_style(&area).color(&ink);
    let columns = usize::try_from(size.width / 70).unwrap_or(5).clamp(3, 14);
    chart
        .configure_mesh()
        .axis_style(Ink::Axis.stroke())
        .bold_line_style(Ink::Grid.stroke())
        .light_line_style(TRANSPARENT)
        .label_style(label)
        .x_labels(columns)
        .y_labels(6)
        .x_label_formatter(&|at| x.label(*at))
        .y_label_formatter(&|at| y.label(*at))
        .disable_x_mesh()
        .draw()
        .expect(DRAWS);
    inside(&mut chart, &sheet);
    drop(chart);
    drop(area);
    sheet.into_markup()
}

/// The `svg` element around it.
pub(super) fn frame(size: Size, class: &str, label: &str, elements: &Markup) -> Markup {
    let view = format!("0 0 {} {}", size.width * SCALE as u32, size.height * SCALE as u32);
    html! {
        svg class=(class) viewBox=(view) role="group" aria-label=(label) { (elements) }
    }
}

/// The backend.
#[derive(Debug)]
pub(super) struct Svg {
    size: Size,
    sheet: Sheet,
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Svg {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.size.width * SCALE as u32, self.size.height * SCALE as u32)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, color: BackendColor) -> Drawn {
        self.draw_rect(at, (at.0 + 1, at.1 + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        _fill: bool,
    ) -> Drawn {
        if let Some(ink) = Ink::of(style.color()) {
            let (x, y) = (from.0.min(to.0), from.1.min(to.1));
            let (width, height) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
            self.sheet.write(format_args!(
                r#"<rect class="{}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#,
                ink.class()
            ));
        }
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        if let Some(ink) = Ink::of(style.color()) {
            self.sheet.write(format_args!(
                r#"<polyline class="{} line" points="{}"/>"#,
                ink.class(),
                points(path)
            ));
        }
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        center: BackendCoord,
        radius: u32,
        style: &S,
        _fill: bool,
    ) -> Drawn {
        if let Some(ink) = Ink::of(style.color()) {
            self.sheet.write(format_args!(
                r#"<circle class="{}" cx="{}" cy="{}" r="{radius}"/>"#,
                ink.class(),
                center.0,
                center.1
            ));
        }
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Drawn {
        if let Some(ink) = Ink::of(style.color()) {
            self.sheet.write(format_args!(
                r#"<polygon class="{}" points="{}"/>"#,
                ink.class(),
                points(corners)
            ));
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        let anchor = match style.anchor().h_pos {
            HPos::Left => "start",
            HPos::Center => "middle",
            HPos::Right => "end",
        };
        let down = match style.anchor().v_pos {
            VPos::Top => "0.76em",
            VPos::Center => "0.36em",
            VPos::Bottom => "-0.24em",
        };
        let class = Ink::of(style.color()).map_or("label", Ink::class);
        self.sheet.add(html! {
            text class=(class) x=(at.0) y=(at.1) dy=(down) text-anchor=(anchor) { (text) }
        });
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        // A digit of a sans-serif font is a little more than half as wide as the font is high.
        let width = text.chars().count() as f64 * style.size() * 0.58;
        Ok((width.ceil() as u32, style.size().ceil() as u32))
    }
}

fn points(path: impl IntoIterator<Item = BackendCoord>) -> String {
    let mut points = String::new();
    for (x, y) in path {
        let gap = if points.is_empty() { "" } else { " " };
        let _ = write!(points, "{gap}{x},{y}");
    }
    points
}
