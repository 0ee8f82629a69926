"""XML as plain elements, from files that may be meant badly: no entities, nothing from outside, bounded in size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from placewright.errors import InvalidInput

__all__ = ["Element", "parse_xml"]

MOST_ELEMENTS = 200_000
DEEPEST = 100


@dataclass(slots=True)
class Element:
    """A tag with its attributes and what stands in it; text is left out."""

    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    parent: Element | None = field(default=None, repr=False)

    def get(self, name: str, default: str = "") -> str:
        """Value of an attribute."""
        return self.attributes.get(name, default)

    def walk(self) -> Iterator[Element]:
        """Yield the element and all that stand in it, in the order of the file."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.children))

    def ancestors(self) -> Iterator[Element]:
        """Yield what it stands in, from the inside out."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent


def parse_xml(data: bytes, what: str) -> Element:
    """Parse a document of at most 200,000 elements and 100 levels.

    A document type may be named, as hwloc does, but is not read; one that is declared in the file is refused, since
    entities could grow without bound.

    Raises
    ------
    InvalidInput
        If it is not well-formed, or breaks a bound.

    Examples
    --------
    >>> parse_xml(b"<a><b c='1'/></a>", "example").children
    [Element(tag='b', attributes={'c': '1'}, children=[])]
    """
    top = Element("", {})
    at, count = [top], 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MOST_ELEMENTS or len(at) > DEEPEST:
            raise InvalidInput(
                f"has more than {MOST_ELEMENTS} elements or {DEEPEST} levels; describe fewer machines", what=what
            )
        element = Element(tag, attributes, parent=at[-1] if at[-1] is not top else None)
        at[-1].children.append(element)
        at.append(element)

    def document_type(name: str, system: str | None, public: str | None, inside: int) -> None:
        if inside:
            raise InvalidInput("declares entities or a document type of its own; remove the declaration", what=what)

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda tag: at.pop()
    parser.StartDoctypeDeclHandler = document_type
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise InvalidInput(f"is not valid XML: {reason} at line {error.lineno}; correct it", what=what) from None
    except (ValueError, LookupError) as error:  # an encoding that is not known
        raise InvalidInput(f"is not valid XML: {error}; write it as UTF-8", what=what) from None
    return top.children[0]
